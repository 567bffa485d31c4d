# SPDX-License-Identifier: Apache-2.0
"""turbo-train and its model `openpi`, as a user types it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Train = Callable[..., "subprocess.CompletedProcess[str]"]
SCRIPT = """\
import json, pathlib, sys
pathlib.Path("argv.json").write_text(json.dumps(sys.argv[1:]))
"""


@pytest.fixture
def train(tmp_path: Path, project_root: Path) -> Train:
    """Run turbo-train in an empty folder, without OPENPI_REPO unless the test gives it."""

    def run(*arguments: str, seconds: float = 240, **variables: str) -> subprocess.CompletedProcess[str]:
        left_out = ("TORCHELASTIC", "OPENPI_")
        environment = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
        environment |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(project_root), **variables}
        command = [sys.executable, "-m", "turbo_hydra.cli.train", *arguments]
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=seconds
        )

    return run


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Make a folder like OpenPI's checkout, whose training script writes down what it was given."""
    folder = tmp_path / "checkout"
    (folder / "scripts").mkdir(parents=True)
    (folder / "scripts" / "train_pytorch.py").write_text(SCRIPT, encoding="utf-8")
    return folder


def given(checkout: Path) -> list[str]:
    """What the script of `checkout` was given."""
    return list(json.loads((checkout / "argv.json").read_text(encoding="utf-8")))
