# SPDX-License-Identifier: Apache-2.0
"""What the children of a rank count: each leaves a file beside its rank's report, and the merge adds them.

multiprocessing ends a fork by `os._exit`, past what `atexit` holds, and kills daemons, such as the workers of a data
loader, when their parent ends. So a child writes from multiprocessing's own finalizers, and within a second of any
change, sooner while it is young.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import time
from multiprocessing import process, util
from pathlib import Path
from typing import TYPE_CHECKING, Any

from turbo_hydra.launch import files
from turbo_hydra.launch.job import Job

if TYPE_CHECKING:
    from turbo_hydra.engine.report import OptimizationReport

SCHEMA_VERSION = "turbo_hydra/child-report/v1"
# The folder, beside the rank's report, of a file for each child that has called a replacement.
CHILDREN = "children"
INTERVAL, FIRST = 1.0, 0.05
# Finalizers run from high to low, those of queues at -5: this is after all that may still call something.
_LAST = -100


def begin(job: Job, rank: int, report: OptimizationReport | None, *, in_rank: bool) -> None:
    """Have this process, unless it is the rank itself, and its forks tell what they count."""
    if job.optimization and report is not None:
        ChildReport(job.rank_folder(rank), job.run_id, rank, report, in_rank=in_rank).begin()


class ChildReport:
    """The hits of a process that is a child of a rank; a child that calls no replacement leaves no file.

    Parameters
    ----------
    rank_folder : Path
        The folder of the rank's report.
    run_id : str
        Names the run.
    rank : int
        The global rank.
    report : OptimizationReport
        That of this process; forks of it have the same.
    in_rank : bool
        Whether this process is the rank, whose hits are in its own report: its forks are children, it is none.
    """

    _path: Path
    _written: list[dict[str, Any]]

    def __init__(
        self, rank_folder: Path, run_id: str, rank: int, report: OptimizationReport, *, in_rank: bool = False
    ) -> None:
        self._folder = rank_folder / CHILDREN
        self._report = report
        self._rank_pid = os.getpid() if in_rank else None
        self._said: dict[str, Any] = {
            "schema_version": SCHEMA_VERSION,
            "run_id": run_id,
            "rank": rank,
            "attempt": int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")),
        }
        self._fresh()

    def begin(self) -> None:
        """Write in this process and in its forks, at intervals and when they end."""
        os.register_at_fork(after_in_child=self._fresh)
        # Called in each fork that multiprocessing makes, once it has forgotten its parent's finalizers.
        util.register_after_fork(self, ChildReport._begin_child)
        if self._rank_pid is None:
            self._begin_child()
        # For a fork by `os.fork` that ends as an interpreter does.
        atexit.register(self.write)

    def write(self) -> None:
        """Write what was counted since this process began, if there is anything new."""
        if os.getpid() == self._rank_pid:
            return
        # The rank tells of a folder that cannot be written to.
        with self._lock, contextlib.suppress(OSError):
            reached = self._report.reached
            if reached != self._written:
                pid = os.getpid()
                told = {"pid": pid, "name": process.current_process().name, "written": time.time()}
                files.write_json(self._path, {**self._said, **told, "execution": reached})
                self._written = reached

    def _fresh(self) -> None:
        self._lock = threading.Lock()
        self._written = []
        # A process id comes again in a long run.
        self._path = self._folder / f"{os.getpid()}-{time.time_ns()}.json"
        self._writing = False

    def _begin_child(self) -> None:
        util.Finalize(None, self.write, exitpriority=_LAST)
        if not self._writing:
            self._writing = True
            threading.Thread(target=self._keep_writing, name="turbo_hydra-child-report", daemon=True).start()

    def _keep_writing(self) -> None:
        wait = FIRST
        while True:
            time.sleep(wait)
            self.write()
            wait = min(2 * wait, INTERVAL)
