# SPDX-License-Identifier: Apache-2.0
"""Each group of each shipped catalog, applied alone, changes its declared sites and nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bevformer_use import stand_in
from turbo_hydra.config import OptimizationConfigCatalog

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
# Where a model's code is when it is part of this repository, or what has its shape; others must be installed.
REPOSITORIES = {
    "tiny_vla": ROOT / "examples" / "tiny_vla",
    "openpi": ROOT / "tests" / "openpi" / "repository",
}
# Their targets are in packages that are not installed here: tests/real does this for `transformers`.
ELSEWHERE = {"transformers", "lerobot_044", "lerobot_pi05"}
# A process for each of their many groups.
NAMES = [
    pytest.param(name, marks=pytest.mark.slow) if name in ("openpi", "bevformer") else name
    for name in ("common", *OptimizationConfigCatalog().names())
    if name not in ELSEWHERE
]


@pytest.mark.parametrize("name", NAMES)
def test_a_group_alone_changes_its_declared_sites_only_and_undo_leaves_nothing(name: str, tmp_path: Path) -> None:
    repository = REPOSITORIES.get(name)
    if name == "bevformer":
        repository = stand_in.completed(tmp_path / "bevformer", ROOT / "tests" / "bevformer" / "repository")
    done = subprocess.run(
        [sys.executable, str(HERE / "isolated.py"), name, *([str(repository)] if repository else [])],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found
    for id, result in found.items():
        assert result["status"] == "applied", f"{id}: {result}"
        assert result["sites"] > 0 or result["imports"], f"{id} is applied and changed nothing"
        assert result["undeclared"] == [], id
        assert result["after_undo"] == [], id
