# SPDX-License-Identifier: Apache-2.0
"""What a person sees of the steps while they run."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Protocol, TextIO

from turbo_hydra.measure.rows import StepRow
from turbo_hydra.measure.statistics import median


class Progress(Protocol):
    """Takes finished rows in order."""

    def show(self, rows: Sequence[StepRow]) -> None:
        """Tell of them."""

    def close(self) -> None:
        """Leave the terminal as it was."""


def describe(rows: Sequence[StepRow]) -> str:
    """One line on the last of some rows: step, typical time and rate since the line before, loss.

    Examples
    --------
    >>> describe([StepRow(step=7, time=0.0, ms=50.0, samples=16, loss=0.25)])
    'step 8   50.0 ms   320 samples/s   loss 0.2500'
    """
    last = rows[-1]
    parts = [f"step {last.step + 1}"]
    times = [row.ms for row in rows if row.ms is not None]
    if times:
        typical = median(times)
        parts.append(f"{typical:.1f} ms")
        if last.samples and typical > 0:
            parts.append(f"{1000 * last.samples / typical:.0f} samples/s")
    if last.loss is not None:
        parts.append(f"loss {last.loss:.4f}")
    return "   ".join(parts)


class Lines:
    """A plain line every few seconds, for logs."""

    def __init__(self, stream: TextIO, interval: float) -> None:
        self._stream = stream
        self._interval = interval
        self._due = time.monotonic() + interval
        self._rows: list[StepRow] = []

    def show(self, rows: Sequence[StepRow]) -> None:
        """Tell of them."""
        self._rows.extend(rows)
        if self._rows and time.monotonic() >= self._due:
            self._write()

    def close(self) -> None:
        """Say what was not said yet, and stop."""
        if self._rows:
            self._write()

    def _write(self) -> None:
        self._stream.write(describe(self._rows) + "\n")
        self._stream.flush()
        self._rows.clear()
        self._due = time.monotonic() + self._interval


class Bar:
    """One line that rich keeps up to date; how many steps there will be is the script's secret."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console
        from rich.progress import Progress as RichProgress
        from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

        # Without its own refreshing thread, and without taking over the script's stdout: drawn when rows come.
        self._progress = RichProgress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            TimeElapsedColumn(),
            console=Console(file=stream),
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._task = self._progress.add_task("waiting for the first step", total=None)
        self._progress.start()

    def show(self, rows: Sequence[StepRow]) -> None:
        """Tell of them."""
        if rows:
            self._progress.update(self._task, description=describe(rows), refresh=True)

    def close(self) -> None:
        """Say what was not said yet, and stop."""
        self._progress.stop()


def open_progress(kind: str, interval: float, rank: int, stream: TextIO | None = None) -> Progress | None:
    """The display of rank 0; other ranks have none.

    Parameters
    ----------
    kind : {"auto", "bar", "lines", "off"}
        `measure.progress`.
    interval : float
        Seconds between plain lines.
    rank : int
        This process's.
    stream : TextIO, optional
        Standard error if not given: standard output is the script's.
    """
    stream = stream or sys.stderr
    if kind == "off" or rank != 0:
        return None
    if kind == "bar" or (kind == "auto" and stream.isatty()):
        return Bar(stream)
    return Lines(stream, interval)
