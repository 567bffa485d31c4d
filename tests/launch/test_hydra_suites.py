# SPDX-License-Identifier: Apache-2.0
"""Hydra's own tests of a launcher, with each job run in one rank, and some of them in two."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hydra.test_utils.launcher_common_tests import (
    BatchedSweeperTestSuite,
    IntegrationTestSuite,
    LauncherTestSuite,
)

# Each job starts an agent and a rank, and both import torch.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ONE = "hydra.launcher.runtime.ranks=1"
TWO = "hydra.launcher.runtime.ranks=2"


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    # Applications under test are started without this project's root on their path.
    root = str(Path(__file__).resolve().parents[2])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")])))


@pytest.mark.parametrize(("launcher_name", "overrides"), [("torchrun", [ONE]), ("torchrun", [TWO])])
class TestLauncher(LauncherTestSuite):
    pass


@pytest.mark.parametrize(
    ("launcher_name", "overrides"), [("torchrun", [ranks, "hydra.sweeper.max_batch_size=2"]) for ranks in (ONE, TWO)]
)
class TestBatchedSweeper(BatchedSweeperTestSuite):
    pass


@pytest.mark.parametrize(
    ("task_launcher_cfg", "extra_flags"),
    [
        ({}, ["-m", "hydra/job_logging=hydra_debug", "hydra/job_logging=disabled", "hydra/launcher=torchrun", ranks])
        for ranks in (ONE, TWO)
    ],
)
class TestIntegration(IntegrationTestSuite):
    pass
