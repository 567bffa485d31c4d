# SPDX-License-Identifier: Apache-2.0
"""turbo-train and its model `bevformer`, as a user types it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Train = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def train(tmp_path: Path, project_root: Path) -> Train:
    """Run turbo-train in an empty folder, without BEVFORMER_REPO unless the test gives it."""

    def run(*arguments: str, site: Path | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
        left_out = ("TORCHELASTIC", "BEVFORMER_")
        environment = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
        search = os.pathsep.join(map(str, filter(None, (site, project_root))))
        environment |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": search, **variables}
        command = [sys.executable, "-m", "turbo_hydra.cli.train", *arguments]
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=240
        )

    return run
