# SPDX-License-Identifier: Apache-2.0
"""Runs of rows, by the launcher that Hydra was told to use: each a process of its own, one at a time or several."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from turbo_hydra.launch import processes
from turbo_hydra.sweep import result as results
from turbo_hydra.sweep.result import Result
from turbo_hydra.sweep.rows import Row, Toggle
from turbo_hydra.sweep.settings import AblationError, AblationSettings
from turbo_hydra.sweep.store import RUNS, Store

Launch = Callable[[Sequence[str], int], Any]
# What the launcher and the run print; the terminal is the sweep's.
CONSOLE = "console.log"


def overrides(row: Row, toggles: Sequence[Toggle], settings: AblationSettings, folder: Path, sweep: Path) -> list[str]:
    """What a row's job is told beside what the user typed."""
    said = [f"optimization.groups.{toggle.id}={str(toggle.id in row.on).lower()}" for toggle in toggles]
    said += [
        f"hydra.sweep.dir={quoted(str(sweep))}",
        f"hydra.sweep.subdir={quoted(str(folder.relative_to(sweep)))}",
        "measure.enabled=true",
        "measure.progress=off",
        "runtime.logs.tee=none",
    ]
    if settings.steps is not None:
        said.append(f"measure.stop_after={settings.steps}")
    return said


def shared_threads(runtime: Mapping[str, Any], at_once: int) -> list[str]:
    """What keeps jobs that run side by side from using each other's CPUs, where nobody has said how many they use."""
    if at_once == 1 or runtime.get("omp_threads") is not None or "OMP_NUM_THREADS" in os.environ:
        return []
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return [f"runtime.omp_threads={max(1, cpus // at_once // int(runtime.get('ranks') or 1))}"]


def quoted(text: str) -> str:
    """A text as a value in Hydra's grammar of overrides."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


class Runner:
    """Runs rows and keeps their results.

    Parameters
    ----------
    store : Store
        Where results and the runs' folders are.
    launch : callable
        Runs one job with the given overrides and number.
    toggles, settings : sequence of Toggle, AblationSettings
        What rows switch, and how.
    arguments : sequence of str
        The overrides that the user typed.
    """

    def __init__(
        self,
        store: Store,
        launch: Launch,
        toggles: Sequence[Toggle],
        settings: AblationSettings,
        arguments: Sequence[str],
    ) -> None:
        self._store = store
        self._launch = launch
        self._toggles = toggles
        self._settings = settings
        self._arguments = list(arguments)
        self._number = 0

    def __call__(self, batch: Sequence[tuple[Row, int]]) -> list[Result]:
        """Run some rows at once; their results, in order, when all have ended."""
        if len(batch) == 1:
            row, number = batch[0]
            began = time.time()
            self._one(row, number, self._store.begin(row, number, began))
            return [self._finished(row, number, began)]
        return self._several(batch)

    def _several(self, batch: Sequence[tuple[Row, int]]) -> list[Result]:
        """A forked process for each: launchers and Hydra hold state of one job at a time in their process."""
        sys.stdout.flush()
        sys.stderr.flush()
        waiting: dict[int, tuple[Row, int, float]] = {}
        try:
            for row, number in batch:
                began = time.time()
                folder = self._store.begin(row, number, began)
                self._number += 1
                child = os.fork()
                if child == 0:
                    self._in_child(row, number, folder)
                waiting[child] = row, number, began
            found: dict[tuple[str, int], Result] = {}
            while waiting:
                child, _ = os.wait()
                if child in waiting:
                    row, number, began = waiting.pop(child)
                    found[row.name, number] = self._finished(row, number, began)
        except BaseException:
            for child in waiting:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, signal.SIGTERM)
            for child in waiting:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(child, 0)
            raise
        return [found[row.name, number] for row, number in batch]

    def _in_child(self, row: Row, number: int, folder: Path) -> None:
        status = 1
        try:
            processes.die_with_parent(signal.SIGTERM)
            self._one(row, number, folder)
            status = 0
        finally:
            # Nothing of the parent's may be flushed or cleaned up twice.
            os._exit(status)

    def _one(self, row: Row, number: int, folder: Path) -> None:
        self._number += 1
        words = [*self._arguments, *overrides(row, self._toggles, self._settings, folder, self._store.folder)]
        with (folder / CONSOLE).open("w", encoding="utf-8") as console, contextlib.redirect_stdout(console):
            self._launch(words, self._number - 1)

    def _finished(self, row: Row, number: int, began: float) -> Result:
        folder = self._store.run_folder(row, number)
        found = results.read(folder, time.time() - began, began, self._settings.loss_steps)
        if found is None:
            where = Path(RUNS, *folder.parts[-2:], CONSOLE)
            raise AblationError(
                f"the run of '{row.name}' was refused before it started; its sentence stands above, and what it "
                f"printed in {self._store.folder / where}"
            )
        self._store.put(row, number, found)
        return found
