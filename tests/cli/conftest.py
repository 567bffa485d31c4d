# SPDX-License-Identifier: Apache-2.0
"""The commands, run as users run them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def _runner(module: str, cwd: Path, root: Path) -> Run:
    def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join(filter(None, [variables.pop("PYTHONPATH", ""), str(root)]))
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TORCHELASTIC")}
        environment |= {"OMP_NUM_THREADS": "1", **variables, "PYTHONPATH": path}
        return subprocess.run(
            [sys.executable, "-m", module, *arguments],
            cwd=cwd,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
        )

    return run


@pytest.fixture
def train(tmp_path: Path, project_root: Path) -> Run:
    """Run turbo-train in an empty folder."""
    return _runner("turbo_hydra.cli.train", tmp_path, project_root)


@pytest.fixture
def opt(tmp_path: Path, project_root: Path) -> Run:
    """Run turbo-opt in an empty folder."""
    return _runner("turbo_hydra.cli.opt", tmp_path, project_root)
