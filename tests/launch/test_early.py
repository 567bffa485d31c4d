# SPDX-License-Identifier: Apache-2.0
"""The agent that is started before the settings are composed: nobody can tell, and it never stays."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.launch.conftest import Launching, Ran

# The rank's parent is the agent: what it was started with, and whether it waited.
SCRIPT = """
import os, pathlib
agent = pathlib.Path("/proc", str(os.getppid()))
line = (agent / "cmdline").read_text().split("\\0")
from_the_start = b"\\0NAME=" in (agent / "environ").read_bytes()
print("early" if "--early" in line else "fresh", os.environ.get("NAME"), from_the_start)
"""


def run(launching: Launching, *overrides: str) -> Ran:
    launching.script(SCRIPT, "train.py")
    return launching.python(
        *("-m", "turbo_hydra.cli.train", "model=custom", "model.entry=train.py", "optimization=common"),
        *(f"hydra.run.dir={launching.output}", "measure=off", "optimization.enabled=false", *overrides),
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ([], "early None False\n"),
        (["runtime.omp_threads=2"], "early None False\n"),
        # Another environment: the agent starts afresh in it.
        (["runtime.environment.set.NAME=x"], "fresh x True\n"),
    ],
)
def test_the_job_has_its_environment_from_the_start(launching: Launching, overrides: list[str], said: str) -> None:
    ran = run(launching, *overrides)
    assert ran.status == 0, ran.err
    assert ran.log(0) == said


def test_nobody_waits_where_there_is_nothing_to_run(launching: Launching) -> None:
    assert run(launching, "model.nmae=x").status == 2
    assert launching.alive() == {}
    assert run(launching, "--cfg", "job").status == 0
    assert launching.alive() == {}
