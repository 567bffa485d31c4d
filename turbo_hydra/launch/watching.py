# SPDX-License-Identifier: Apache-2.0
"""What can go wrong while the ranks run and no rank says so: they hang, or another node is gone."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from turbo_hydra.launch import files, processes
from turbo_hydra.launch.job import Job, count, number
from turbo_hydra.launch.timing import BEAT, START_TIMEOUT

# A real-time signal: SIGUSR1 and SIGUSR2 are taken by schedulers' and trainers' own conventions.
DUMP_SIGNAL = signal.SIGRTMAX - 3
# Seconds that ranks have for writing their stacks before they are ended.
_PATIENCE = 5.0


def answer_with_stacks() -> None:
    """Have this process write all its Python stacks to its stderr when it gets `DUMP_SIGNAL`; even while it hangs."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        faulthandler.register(DUMP_SIGNAL, file=2, all_threads=True)


def dump_stacks() -> list[int]:
    """Have the ranks below this process write their stacks; returns those that were asked.

    The signal would end a process that does not answer it, so only those that do are asked.
    """
    asked = []
    for process in processes.descendants(os.getpid()):
        if processes.catches(process, DUMP_SIGNAL):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process, DUMP_SIGNAL)
                asked.append(process)
    return asked


@dataclass(frozen=True)
class Trouble:
    """Why the agent ends its ranks: the exit status that follows, and the sentence for it."""

    status: int
    sentence: str


class Watch:
    """Looks after a node's ranks until it is stopped; what it finds ends this process's launch by SIGTERM.

    Parameters
    ----------
    job : Job
        The run.
    ranks : callable
        Returns the global ranks of this node that were started.

    Attributes
    ----------
    trouble : Trouble or None
        What it found.
    """

    def __init__(self, job: Job, ranks: Callable[[], Iterable[int]]) -> None:
        self.trouble: Trouble | None = None
        self._job = job
        self._ranks = ranks
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, name="turbo_hydra-watch", daemon=True)
        self._checks = [_Hang(job, ranks).check]
        self._nodes = count(job.runtime, "nodes", 1, least=1)
        if self._nodes > 1:
            self._checks.append(_Nodes(job, self._nodes).check)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End; nothing is found any more."""
        self._stop.set()

    def _look(self) -> None:
        while not self._stop.wait(0.5):
            for check in self._checks:
                trouble = check()
                if trouble is not None and not self._stop.is_set():
                    self.trouble = trouble
                    os.kill(os.getpid(), signal.SIGTERM)
                    return


class _Hang:
    """Ranks that do not begin, or neither print nor step."""

    def __init__(self, job: Job, ranks: Callable[[], Iterable[int]]) -> None:
        self._job = job
        self._ranks = ranks
        self._start = number(job.runtime, "timeouts.start", START_TIMEOUT)
        self._hang = number(job.runtime, "timeouts.hang", 0.0)
        self._state: object = None
        self._since = self._started = time.monotonic()
        self._all_begun = False

    def check(self) -> Trouble | None:
        now = time.monotonic()
        ranks = sorted(self._ranks())
        if not ranks:
            self._started = self._since = now
            return None
        if not self._all_begun:
            waiting = [rank for rank in ranks if not (self._job.rank_folder(rank) / "report.json").exists()]
            self._all_begun = not waiting
            if waiting and now - self._started > self._start:
                who = ", ".join(map(str, waiting))
                return self._ended(f"rank {who} had not begun its script after {self._start:g} seconds", "start")
        state = [self._size(rank, name) for rank in ranks for name in ("stdout.log", "stderr.log", "steps.jsonl")]
        if state != self._state:
            self._state, self._since = state, now
        if self._hang and now - self._since > self._hang:
            return self._ended(f"no rank printed anything or made a step for {self._hang:g} seconds", "hang")
        return None

    def _size(self, rank: int, name: str) -> int:
        try:
            return (self._job.rank_folder(rank) / name).stat().st_size
        except OSError:
            return -1

    def _ended(self, what: str, setting: str) -> Trouble:
        asked = dump_stacks()
        # The stacks are written by the ranks themselves, which takes them a moment. Between its delivery and its
        # handler a signal is nowhere to be seen: once is not enough.
        end, unseen = time.monotonic() + _PATIENCE, 0
        while time.monotonic() < end and unseen < 3:
            unseen = 0 if any(processes.is_at(process, DUMP_SIGNAL) for process in asked) else unseen + 1
            time.sleep(0.02)
        where = self._job.folder / "ranks" / "*" / "stderr.log"
        return Trouble(
            1, f"{what} (runtime.timeouts.{setting}), so the run was ended; where each rank was is in {where}"
        )


class _Nodes:
    """The other nodes: what their agents recorded, and whether they still give a sign of life."""

    def __init__(self, job: Job, nodes: int) -> None:
        self._me = count(job.runtime, "node_rank", 0)
        self._folder = job.folder / "agents"
        self._others = [node for node in range(nodes) if node != self._me]
        self._patience = min(60.0, number(job.runtime, "rendezvous.timeout", START_TIMEOUT))
        self._seen: dict[int, tuple[str, float]] = {}
        self._beats = 0
        self._next = 0.0

    def check(self) -> Trouble | None:
        now = time.monotonic()
        if now >= self._next:
            self._next = now + BEAT
            self._beats += 1
            with contextlib.suppress(OSError):
                self._sign(self._me).write_text(str(self._beats))
        for node in self._others:
            record = files.read_json(self._folder / f"{node}.json")
            ended = isinstance(record, dict) and record.get("status") is not None
            if ended and record["status"] != 0:
                failure = record.get("first_failure") or {}
                why = failure.get("sentence") or record.get("trouble") or f"its agent ended with {record['status']}"
                return Trouble(int(record["status"]), f"node {node} ({record.get('host')}) failed: {why}")
            if not ended and self._silent(node, now):
                return Trouble(1, f"node {node} has given no sign of life for {self._patience:g} seconds")
        return None

    def _silent(self, node: int, now: float) -> bool:
        try:
            sign = self._sign(node).read_text()
        except OSError:
            return False  # it has not come yet; the rendezvous waits for it
        # The hosts' clocks differ: what counts is how long the sign has not changed here.
        before, since = self._seen.get(node, ("", now))
        if sign != before:
            self._seen[node] = (sign, now)
            return False
        return now - since > self._patience

    def _sign(self, node: int) -> Path:
        return self._folder / f"{node}.alive"


def say(text: str) -> None:
    """Tell the user, at once."""
    sys.stderr.write(f"turbo_hydra: {text}\n")
    sys.stderr.flush()
