# SPDX-License-Identifier: Apache-2.0
"""Steps that have ended: they wait for the device, and are then written, shown and counted in."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from turbo_hydra.measure import device
from turbo_hydra.measure.history import History
from turbo_hydra.measure.process import peak_device_bytes, peak_host_bytes
from turbo_hydra.measure.progress import open_progress
from turbo_hydra.measure.rows import StepRow
from turbo_hydra.measure.settings import MeasureSettings
from turbo_hydra.measure.writers import open_writers

if TYPE_CHECKING:
    import torch

# A longer queue is written out whatever the clock says: it holds tensors on the device.
LONGEST_QUEUE = 512


@dataclass
class Noted:
    """What is noted of a step while it is under way."""

    losses: list[device.Scalar] = field(default_factory=list)
    closure_loss: device.Scalar | None = None
    grad_norm: device.Scalar | None = None
    data_ns: int | None = None

    def loss(self) -> list[device.Scalar]:
        """The losses that count: of an optimizer's closure, only the first evaluation is the script's loss."""
        return self.losses if self.closure_loss is None else [*self.losses, self.closure_loss]

    def scalars(self) -> list[device.Scalar]:
        """All numbers whose values may still be on a device."""
        return self.loss() if self.grad_norm is None else [*self.loss(), self.grad_norm]


@dataclass
class _Ended:
    row: StepRow
    noted: Noted
    start: torch.cuda.Event | None
    end: torch.cuda.Event | None

    def fill(self) -> None:
        """Complete the row by what has been read from the device."""
        values = [scalar.value for scalar in self.noted.loss() if scalar.value is not None]
        if values:
            self.row.loss = sum(values)
            self.row.losses = values if len(values) > 1 else None
        if self.noted.grad_norm is not None:
            self.row.grad_norm = self.noted.grad_norm.value
        self.row.device_ms = device.elapsed_ms(self.start, self.end)


class EndedSteps:
    """The queue of ended steps, and where they go.

    Parameters
    ----------
    settings : MeasureSettings
        Writers, progress, and how many seconds lie between two writings.
    folder : Path
        Where files are written.
    rank : int
        Progress is shown by rank 0.
    clock : device.Device
        Reads the numbers; takes the events back.
    history : History
        Told of every row that is written.
    """

    def __init__(
        self, settings: MeasureSettings, folder: Path, rank: int, clock: device.Device, history: History
    ) -> None:
        self._interval_ns = int(settings.interval * 1e9)
        self._writers = open_writers(settings.writers, folder)
        self._progress = open_progress(settings.progress, settings.progress_interval, rank)
        self._clock = clock
        self._history = history
        self._next_write = time.perf_counter_ns()
        self._queue: deque[_Ended] = deque()

    def add(self, row: StepRow, noted: Noted, start: torch.cuda.Event | None, end: torch.cuda.Event | None) -> None:
        """Queue a step that lies between two events (None where there is no device)."""
        self._queue.append(_Ended(row, noted, start, end))

    def write_in_time(self, now: int) -> None:
        """Write what the device has finished if the last writing is long ago, or the queue long."""
        if now >= self._next_write or len(self._queue) >= LONGEST_QUEUE:
            self.write(everything=False)
            self._next_write = time.perf_counter_ns() + self._interval_ns

    def write(self, everything: bool) -> None:
        """Write the steps that the device has finished; with `everything` wait for those it has not."""
        done: list[_Ended] = []
        if everything and self._queue:
            # What is left is read on a stream of its own, which does not wait for the script's.
            device.wait(self._queue[-1].end)
        while self._queue and (everything or device.passed(self._queue[0].end)):
            done.append(self._queue.popleft())
        if not done:
            return
        self._clock.read([scalar for ended in done for scalar in ended.noted.scalars()])
        for ended in done:
            ended.fill()
            if ended.start is not None:
                self._clock.release(ended.start)
        rows = [ended.row for ended in done]
        _note_memory(rows[-1])
        self._history.add(rows)
        for writer in self._writers:
            writer.write(rows)
        if self._progress is not None:
            self._progress.show(rows)

    def close(self) -> None:
        """Let go of files and terminal."""
        for part in (self._progress, *self._writers):
            if part is not None:
                # A full disk, which was reported when it was met.
                with contextlib.suppress(OSError):
                    part.close()


def _note_memory(row: StepRow) -> None:
    row.peak_host_bytes = peak_host_bytes()
    memory = peak_device_bytes()
    if memory is not None:
        row.peak_allocated_bytes, row.peak_reserved_bytes = memory
