# SPDX-License-Identifier: Apache-2.0
"""One rank's report: written after applying, at intervals and at the end, so that a killed rank leaves the last."""

from __future__ import annotations

import atexit
import contextlib
import os
import socket
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from turbo_hydra.launch import files

if TYPE_CHECKING:
    from turbo_hydra.engine.report import OptimizationReport
    from turbo_hydra.measure.meter import Meter

SCHEMA_VERSION = "turbo_hydra/rank-report/v1"
INTERVAL = 10.0


class RankReport:
    """What a rank tells about itself.

    Parameters
    ----------
    path : Path
        The file.
    run_id : str
        Names the run.
    rank : int
        The global rank.

    Attributes
    ----------
    bound : dict
        CPUs and memory of the rank, as the kernel said after binding.
    """

    def __init__(self, path: Path, run_id: str, rank: int) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._warned = False
        self._report: OptimizationReport | None = None
        self._meter: Meter | None = None
        self._pid = os.getpid()
        self.bound: dict[str, Any] = {}
        self._state: dict[str, Any] = {
            "schema_version": SCHEMA_VERSION,
            "run_id": run_id,
            "rank": rank,
            "local_rank": int(os.environ.get("LOCAL_RANK", "0")),
            "world_size": int(os.environ.get("WORLD_SIZE", "1")),
            "attempt": int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")),
            "host": socket.gethostname(),
            "pid": self._pid,
            "status": "running",
            "exit_status": None,
            "started": time.time(),
        }

    def begin(self, report: OptimizationReport | None, meter: Meter | None) -> None:
        """Write for the first time, and from now on at intervals and when the interpreter ends."""
        self._report, self._meter = report, meter
        self.write()
        # Registered before anything of the script's, so it runs after: what those still do is counted.
        atexit.register(self._last)
        threading.Thread(target=self._keep_writing, name="turbo_hydra-report", daemon=True).start()

    def refuse(self, report: OptimizationReport | None, status: str, exit_status: int) -> None:
        """Write the report of an attempt after which the script is not executed."""
        self._report = report
        self.finish(status, exit_status)

    def finish(self, status: str, exit_status: int) -> None:
        """Record how the script ended."""
        self._state.update(status=status, exit_status=exit_status, ended=time.time())
        if self._meter is not None and os.getpid() == self._pid:
            try:
                self._meter.close()
            except Exception as problem:  # metering may not end a training
                self._warn(f"the meter could not be closed: {problem!r}")
        self.write()

    def write(self) -> None:
        """Write what holds now. A folder that cannot be written to is told once and does not end the training."""
        if os.getpid() != self._pid:  # a fork of the rank is not the rank
            return
        with self._lock:
            try:
                files.write_json(self._path, self._data())
            except Exception as problem:
                self._warn(f"cannot write {self._path}: {problem}")

    def _data(self) -> dict[str, Any]:
        told = {} if self._report is None else self._report.to_dict()
        return {
            **told,
            **self._state,
            "bound": self.bound,
            "written": time.time(),
            "modules": _module_files(told),
            "steps": {} if self._meter is None else self._meter.summary(),
        }

    def _keep_writing(self) -> None:
        while not self._done.wait(INTERVAL):
            self.write()

    def _last(self) -> None:
        self._done.set()
        self.write()

    def _warn(self, text: str) -> None:
        if not self._warned:
            self._warned = True
            # The log that this goes to may be on the very disk that is full.
            with contextlib.suppress(OSError):
                sys.stderr.write(f"turbo_hydra: {text}\n")


def _module_files(told: dict[str, Any]) -> dict[str, str]:
    """Return the files of the modules that hold the targets: two ranks may have found two copies."""
    found = {}
    for entry in told.get("execution", ()):
        for member in entry.get("members", ()):
            name = str(member.get("target", ""))
            while name and name not in sys.modules:
                name = name.rpartition(".")[0]
            # `vars`: looking at a lazy module's attributes would load what it stands for.
            file = vars(sys.modules[name]).get("__file__") if name else None
            if file is not None:
                found[name] = str(file)
    return found
