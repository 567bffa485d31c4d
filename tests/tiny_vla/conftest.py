# SPDX-License-Identifier: Apache-2.0
"""The example as tests see it: a project of its own, put on the import path like its script's folder."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
import torch

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "tiny_vla"
if str(EXAMPLE) not in sys.path:
    sys.path.insert(0, str(EXAMPLE))  # before the test modules are collected, which import the example

Run = Callable[..., str]


@pytest.fixture(autouse=True)
def _one_thread_and_own_seed() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def example() -> Path:
    """Return the folder of the example."""
    return EXAMPLE


@pytest.fixture
def script(example: Path, tmp_path: Path) -> Run:
    """Return a function that runs a script of the example in a process of its own and gives what it printed."""

    def run(name: str, *args: object, ranks: int = 1, cwd: Path = tmp_path, seconds: float = 240) -> str:
        launcher: Sequence[str] = ()
        if ranks > 1:
            launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks))
        command = [sys.executable, *launcher, str(example / name), *map(str, args)]
        # As a user starts it: with the script's folder on the path, which the tests themselves go without.
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONSAFEPATH"}
        environment["OMP_NUM_THREADS"] = "1"
        done = subprocess.run(
            command, capture_output=True, text=True, cwd=cwd, env=environment, timeout=seconds, check=False
        )
        if done.returncode != 0:
            pytest.fail(f"{command} ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
        return done.stdout

    return run
