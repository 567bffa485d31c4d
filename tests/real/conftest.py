# SPDX-License-Identifier: Apache-2.0
"""Environments of real packages, one for each entry of environments.yaml; made on first use, kept under .real/."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from filelock import FileLock

_PROJECT = Path(__file__).resolve().parents[2]
_TABLES = Path(__file__).with_name("environments.yaml")
_FOLDER = Path(os.environ.get("TURBO_HYDRA_REAL", _PROJECT / ".real"))


def _make(name: str) -> Path:
    """The interpreter of an environment: the pinned torch, then the pip calls of its entry, then this project."""
    steps: list[list[str]] = [
        ["--constraint", str(_PROJECT / "constraints.txt"), "setuptools", "torch"],
        *yaml.safe_load(_TABLES.read_text(encoding="utf-8"))[name],
        ["--no-build-isolation", "--editable", str(_PROJECT)],
    ]
    key = hashlib.sha256(json.dumps([steps, sys.version]).encode()).hexdigest()[:12]
    folder = _FOLDER / f"{name}-{key}"
    python = folder / "bin" / "python"
    _FOLDER.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):
        if not (folder / ".ready").exists():
            subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
            for step in steps:
                subprocess.run([str(python), "-m", "pip", "install", "--quiet", *step], check=True, cwd=_PROJECT)
            (folder / ".ready").touch()
    return python


@pytest.fixture(scope="session")
def environment() -> Callable[[str], Path]:
    """The Python of an environment of environments.yaml."""
    return _make
