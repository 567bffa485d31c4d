# SPDX-License-Identifier: Apache-2.0
"""Sweeps of the project with planted effects, by the command that users type."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

PROJECT = Path(__file__).with_name("project")


@dataclass
class Swept:
    """What a sweep left."""

    status: int
    out: str
    err: str
    folder: Path

    @property
    def data(self) -> dict[str, Any]:
        """What `ablation.json` holds."""
        data: dict[str, Any] = json.loads((self.folder / "ablation.json").read_text(encoding="utf-8"))
        return data

    @property
    def verdicts(self) -> dict[str, dict[str, Any]]:
        """Verdicts by name."""
        return {verdict["name"]: verdict for verdict in self.data["verdicts"]}


Sweeping = Callable[..., Swept]


def command(project: Path, folder: Path, *overrides: str) -> list[str]:
    """The command line of a sweep over the project's groups."""
    return [
        *(sys.executable, "-m", "turbo_hydra.cli.train", "--config-dir", str(project / "conf")),
        *("-m", "hydra/sweeper=ablation", "model=planted", f"model.repo={project}", f"hydra.sweep.dir={folder}"),
        *overrides,
    ]


def environment(project: Path, root: Path) -> dict[str, str]:
    """Where the project's catalog and the package are found."""
    path = os.pathsep.join(filter(None, [str(project), str(root), os.environ.get("PYTHONPATH", "")]))
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of the project."""
    return Path(shutil.copytree(PROJECT, tmp_path / "project", ignore=shutil.ignore_patterns("__pycache__")))


@pytest.fixture
def sweeping(project: Path, tmp_path: Path, project_root: Path) -> Sweeping:
    """Run a sweep to its end: `sweeping("ablation.strategy=...", ...)`."""

    def run(*overrides: str, timeout: float = 3000) -> Swept:
        folder = tmp_path / "sweep"
        done = subprocess.run(
            command(project, folder, *overrides),
            cwd=tmp_path,
            env=environment(project, project_root),
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
        )
        return Swept(done.returncode, done.stdout, done.stderr, folder)

    return run
