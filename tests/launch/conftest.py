# SPDX-License-Identifier: Apache-2.0
"""Running small scripts for real: as a rank alone, or with the whole tree of command, agent and ranks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from turbo_hydra.launch.caches import VARIABLES
from turbo_hydra.launch.job import Job

COMMAND = """
import json, sys
from turbo_hydra.launch import Job, run
status = run(Job(**json.loads(sys.argv[1])))
assert "torch" not in sys.modules, "the command imported torch"
sys.exit(status)
"""
MARK = "LAUNCH_TEST_MARK"


@dataclass
class Ran:
    """What a run left."""

    status: int
    out: str
    err: str
    folder: Path

    @property
    def report(self) -> dict[str, Any]:
        """The merged report."""
        data: dict[str, Any] = json.loads((self.folder / "turbo" / "report.json").read_text())
        return data

    def log(self, rank: int, stream: str = "stdout") -> str:
        """What a rank wrote."""
        return (self.folder / "turbo" / "ranks" / str(rank) / f"{stream}.log").read_text(errors="replace")


@dataclass
class Launching:
    """Writes scripts into a folder and runs them."""

    folder: Path
    output: Path
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)

    def script(self, text: str, name: str = "script.py") -> Path:
        """Write a script."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text), encoding="utf-8")
        return path

    def job(self, text: str | None = None, *, ranks: int = 1, **groups: Any) -> Job:
        """Make a job of a script; `model` and `runtime` add settings."""
        model = {"name": "test", **groups.pop("model", {})}
        if text is not None:
            model["entry"] = self.script(text).name
        return Job(
            run_id="test-run",
            output_dir=str(self.output),
            cwd=str(self.folder),
            model=model,
            runtime={"ranks": ranks, **groups.pop("runtime", {})},
            **groups,
        )

    def environment(self, **variables: str) -> dict[str, str]:
        """What processes of this test start with; the mark finds them again."""
        return {**os.environ, "OMP_NUM_THREADS": "1", MARK: self.mark, **variables}

    def start(self, job: Job, *before: str, **variables: str) -> subprocess.Popen[str]:
        """Start the command for a job, and do not wait; `before` is what its command line begins with."""
        return subprocess.Popen(
            [*before, sys.executable, "-c", COMMAND, json.dumps(vars(job))],
            cwd=self.folder,
            env=self.environment(**variables),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )

    def finish(self, command: subprocess.Popen[str], timeout: float = 120) -> Ran:
        """Wait for the command."""
        out, err = command.communicate(timeout=timeout)
        return Ran(command.returncode, out, err, self.output)

    def run(self, job: Job, **variables: str) -> Ran:
        """Run the command for a job to its end."""
        return self.finish(self.start(job, **variables))

    def rank(self, job: Job, *arguments: str, flags: tuple[str, ...] = (), **variables: str) -> Ran:
        """Run one rank, without command and agent."""
        path = job.write()
        elsewhere = self.output / "elsewhere"
        elsewhere.mkdir(exist_ok=True)
        ran = subprocess.run(
            [sys.executable, *flags, "-m", "turbo_hydra.launch.rank", str(path), *arguments],
            cwd=elsewhere,
            env=self.environment(**variables),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=120,
            check=False,
        )
        return Ran(ran.returncode, ran.stdout, ran.stderr, self.output)

    def python(self, *arguments: str, **variables: str) -> Ran:
        """Run plain Python in the scripts' folder."""
        ran = subprocess.run(
            [sys.executable, *arguments],
            cwd=self.folder,
            env=self.environment(**variables),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=120,
            check=False,
        )
        return Ran(ran.returncode, ran.stdout, ran.stderr, self.output)

    def alive(self) -> dict[int, str]:
        """Return the test's processes that are still there, with their command lines; zombies are not."""
        found = {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            try:
                if f"{MARK}={self.mark}".encode() in (entry / "environ").read_bytes():
                    words = (entry / "cmdline").read_bytes().replace(b"\0", b" ")
                    found[int(entry.name)] = words.decode(errors="replace")
            except OSError:
                continue
        return found

    def until(self, condition: Callable[[], Any], seconds: float = 60) -> None:
        """Wait until something holds, and fail if it does not within `seconds`."""
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, f"not within {seconds} seconds"
            time.sleep(0.02)


@pytest.fixture
def launching(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Launching]:
    """Return a folder for scripts and a way to run them; no process of the test may outlive it.

    Cache folders are those that the job names: one that the caller has named would hold what earlier runs compiled.
    """
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    folder, output = tmp_path / "model", tmp_path / "out"
    folder.mkdir()
    output.mkdir()
    made = Launching(folder, output)
    yield made
    try:
        made.until(lambda: not made.alive(), 10)
    finally:
        for process in made.alive():
            os.kill(process, signal.SIGKILL)
