# SPDX-License-Identifier: Apache-2.0
"""A rank that failed: what it leaves behind, and which of several failed first."""

from __future__ import annotations

import dataclasses
import os
import signal
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from turbo_hydra.launch import files, outcome

_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep


def trimmed(problem: BaseException, script: str) -> BaseException:
    """Drop our own frames from the outer end of a traceback; the script's first frame begins it, as under python.

    Parameters
    ----------
    problem : BaseException
        Changed in place and returned.
    script : str
        The script's file: a `SyntaxError` in it has no frame at all.
    """
    first: TracebackType | None = problem.__traceback__
    while first is not None and first.tb_frame.f_code.co_filename.startswith(_HERE):
        first = first.tb_next
    if first is None and not (isinstance(problem, SyntaxError) and problem.filename == script):
        return problem  # it came out of our own code, which then must show itself
    return problem.with_traceback(first)


def record(path: Path, problem: BaseException, rank: int) -> None:
    """Write `error.json` in the form that torch's elastic agent reads, with the exact time beside it."""
    now = time.time()
    text = "".join(traceback.format_exception(type(problem), problem, problem.__traceback__))
    message = {
        "message": "".join(traceback.format_exception_only(type(problem), problem)).strip(),
        "extraInfo": {"py_callstack": text, "timestamp": str(int(now))},
    }
    files.write_json(path, {"message": message, "rank": rank, "time": now})


@dataclass(frozen=True)
class Failure:
    """One rank's end that was no success.

    Attributes
    ----------
    rank : int
        Its global rank.
    returncode : int
        As the operating system gave it: -n for signal n.
    pid : int
        Its process.
    recorded : float or None
        When it wrote `error.json`, None if it wrote none.
    message, traceback : str or None
        What it wrote there.
    memory : bool
        Whether the kernel killed a process for want of memory meanwhile.
    """

    rank: int
    returncode: int
    pid: int
    recorded: float | None = None
    message: str | None = None
    traceback: str | None = None
    memory: bool = False

    @classmethod
    def read(cls, rank: int, returncode: int, pid: int, error_file: Path) -> Failure:
        """Put together what the operating system and the rank itself said."""
        data = files.read_json(error_file)
        said = data.get("message") if isinstance(data, dict) else None
        if not isinstance(said, dict):
            return cls(rank, returncode, pid, message=said if isinstance(said, str) else None)
        extra = said.get("extraInfo") or {}
        when = data.get("time", extra.get("timestamp"))
        return cls(
            rank,
            returncode,
            pid,
            recorded=None if when is None else float(when),
            message=said.get("message"),
            traceback=extra.get("py_callstack"),
        )

    @property
    def status(self) -> int:
        """The exit status that it gives the run."""
        return outcome.from_returncode(self.returncode)

    def sentence(self) -> str:
        """Say in one sentence how it ended."""
        if self.returncode < 0:
            try:
                name = signal.Signals(-self.returncode).name
            except ValueError:
                name = f"signal {-self.returncode}"
            why = ", probably since memory ran out" if self.memory and self.returncode == -signal.SIGKILL else ""
            return f"rank {self.rank} (pid {self.pid}) was killed by {name}{why}"
        what = f": {self.message.splitlines()[-1]}" if self.message else ""
        return f"rank {self.rank} (pid {self.pid}) ended with status {self.returncode}{what}"

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data, for the agent's record and the report."""
        return {
            "rank": self.rank,
            "pid": self.pid,
            "time": self.recorded,
            "status": self.status,
            "signal": -self.returncode if self.returncode < 0 else None,
            "message": self.message,
            "traceback": self.traceback,
            "sentence": self.sentence(),
        }


def first(failures: Sequence[Failure]) -> Failure:
    """Return the failure that the others follow from.

    Parameters
    ----------
    failures : sequence of Failure
        In the order in which the agent noticed them: those that made it end the group come before those it ended.
    """
    ended_by_agent = {-signal.SIGTERM, -signal.SIGKILL}
    own = [failure for index, failure in enumerate(failures) if index == 0 or failure.returncode not in ended_by_agent]
    if own[0].recorded is None:
        # A rank that is killed says nothing; what its peers say next (a lost connection) is the consequence.
        return own[0]
    return min((failure for failure in own if failure.recorded is not None), key=lambda failure: failure.recorded or 0)


def read_all(
    returncodes: Mapping[int, tuple[int, int]], error_files: Mapping[int, Path], memory: bool = False
) -> list[Failure]:
    """Read the failures of several ranks, given return code and process of each, in the order of noticing."""
    found = [Failure.read(rank, code, pid, error_files[rank]) for rank, (code, pid) in returncodes.items()]
    return [dataclasses.replace(failure, memory=memory) for failure in found]


def killed_for_memory() -> int:
    """Return how many processes the kernel has killed for want of memory: on this machine, and in our container."""
    return sum(_counted(path) for path in (Path("/proc/vmstat"), *_memory_groups()))


def _counted(path: Path) -> int:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)


def _memory_groups() -> list[Path]:
    """Return the files with the counts of this process's control group: one hierarchy, or one of memory's own."""
    root = Path("/sys/fs/cgroup")
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    places = {name: path.strip("/") for _, name, path in (line.split(":", 2) for line in lines)}
    return [
        *([root / places[""] / "memory.events"] if "" in places else []),
        *(
            root / "memory" / path / "memory.oom_control"
            for names, path in places.items()
            if "memory" in names.split(",")
        ),
    ]
