# SPDX-License-Identifier: Apache-2.0
"""The meter: sees the steps of whatever PyTorch script this process runs.

It is told of events by torch's global optimizer hooks and by the wraps of `observers`. While the script runs it only
notes: clock readings, references to scalars, events on the device. Every `interval` seconds, at the end of a step, it
turns into rows what the device has finished by then.
"""

from __future__ import annotations

import functools
import logging
import os
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from turbo_hydra.measure import compiling, device, observers
from turbo_hydra.measure.batch import operations_per_step, samples_per_step, tokens_per_step
from turbo_hydra.measure.boundaries import StepBoundaries
from turbo_hydra.measure.ended import EndedSteps, Noted
from turbo_hydra.measure.guarding import between_graphs, harmless
from turbo_hydra.measure.history import History
from turbo_hydra.measure.process import age_seconds, peak_device_bytes, peak_host_bytes
from turbo_hydra.measure.profiling import StepProfiler
from turbo_hydra.measure.rows import StepRow
from turbo_hydra.measure.scaling import ScaledLosses
from turbo_hydra.measure.settings import MeasureSettings

if TYPE_CHECKING:
    import torch

_log = logging.getLogger(__name__)


class Meter:
    """Counts and times steps until closed; made by `install`."""

    def __init__(
        self,
        settings: MeasureSettings,
        samples: int | None,
        folder: Path,
        rank: int,
        tokens: int | None = None,
        operations: float | None = None,
    ) -> None:
        self._settings = settings
        self._samples = samples
        self._tokens = tokens
        self._profiler = StepProfiler(settings.profile, folder) if settings.profile else None
        self._boundaries = StepBoundaries(settings.step_every)
        self._history = History(settings.warmup, operations=operations, peak_tflops=settings.peak_tflops)
        self._device = device.Device()
        self._ended = EndedSteps(settings, folder, rank, self._device, self._history)
        self._thread = threading.get_ident()
        self._installed = time.perf_counter_ns()
        self._process_age = age_seconds()
        self._first_step_seconds: float | None = None
        self._last_end: int | None = None
        self._last_cpu = 0
        self._last_event: torch.cuda.Event | None = None
        self._count = 0
        self._graphs = compiling.compiled_graphs()
        self._backward_depth = 0
        self._waiting = False
        self._updating = False
        self._scaled = ScaledLosses()
        self._step = Noted()
        self._problem: str | None = None
        self._hooks = [
            register_optimizer_step_pre_hook(_optimizer_starts),
            register_optimizer_step_post_hook(_optimizer_stepped),
        ]
        observers.set_current(self)

    # What the wraps and hooks call

    @harmless
    def backward_started(self, tensors: Any) -> None:
        """`backward` was called on these; calls from within a backward (a re-entrant checkpoint) are part of it."""
        self._backward_depth += 1
        if self._backward_depth > 1:
            return
        self._boundaries.backward()
        several = tensors if isinstance(tensors, (list, tuple)) else (tensors,)
        for tensor in several:
            scalar = device.observe(self._scaled.unscaled(tensor))
            if scalar is None:
                continue
            if not self._updating:
                self._step.losses.append(scalar)
            elif self._step.closure_loss is None:
                self._step.closure_loss = scalar

    @harmless
    def backward_ended(self) -> None:
        """The backward that was reported last is over, normally or not."""
        self._backward_depth -= 1

    def data_wait_started(self) -> int | None:
        """The script asks a DataLoader for a batch; None if that is no waiting of the script's own.

        A loader that another reads from, or that a thread reads ahead, costs the steps nothing by itself.
        """
        if self._waiting or threading.get_ident() != self._thread:
            return None
        self._waiting = True
        return time.perf_counter_ns()

    def data_wait_ended(self, start: int | None) -> None:
        """The batch is there, or the loader is at its end."""
        if start is not None:
            self._waiting = False
            self._step.data_ns = (self._step.data_ns or 0) + time.perf_counter_ns() - start

    @harmless
    def norm_computed(self, norm: Any) -> None:
        """Gradients were clipped; with several clips in a step the last counts."""
        self._step.grad_norm = device.observe(norm)

    @harmless
    def loss_scaled(self, outputs: Any, scaled: Any) -> None:
        """A `GradScaler` made `scaled` of `outputs`; the latter are the script's own numbers."""
        self._scaled.note(outputs, scaled)

    @harmless
    def scaler_stepped(self) -> None:
        """`GradScaler.step` returned; without an update inside it, it skipped one."""
        if self._boundaries.scaler():
            self._end_step(skipped=True)

    def optimizer_starts(self) -> None:
        """An optimizer's `step()` is entered: a backward in it is its closure's."""
        self._updating = True

    @harmless
    def optimizer_stepped(self, key: int) -> None:
        """An optimizer's `step()` is done."""
        self._updating = False
        if self._boundaries.optimizer(key):
            self._end_step(skipped=False)

    # What the rank calls

    def summary(self) -> dict[str, Any]:
        """Plain data on the steps written so far: `History.summary`, memory, start and compilation."""
        memory = peak_device_bytes()
        return {
            **self._history.summary(),
            "time_to_first_step_s": self._first_step_seconds,
            "compile_s": compiling.compile_seconds(),
            "launches_per_step": self._profiler.launches if self._profiler else None,
            "peak_memory": {
                "host_bytes": peak_host_bytes(),
                "device_allocated_bytes": memory[0] if memory else None,
                "device_reserved_bytes": memory[1] if memory else None,
            },
            "problem": self._problem,
        }

    @harmless
    def flush(self) -> None:
        """Write all steps that have ended, and wait for the device where it has not finished them."""
        self._ended.write(everything=True)
        self._history.finish()

    def close(self) -> None:
        """Write what is left and let go of torch; may be called twice."""
        if observers.current() is not self:
            return
        self._detach()
        try:
            if self._profiler is not None:
                self._profiler.close(self._count)
            self._ended.write(everything=True)
        except Exception as error:
            self.give_up(error)
        self._history.finish()
        self._ended.close()

    # Within

    def _clocks(self) -> tuple[int, int, torch.cuda.Event | None]:
        """Wall and CPU time in nanoseconds, and the device's mark if there is a device."""
        return time.perf_counter_ns(), time.process_time_ns(), self._device.mark() if self._device.ready else None

    def _end_step(self, skipped: bool) -> None:
        now, cpu, event = self._clocks()
        graphs = compiling.compiled_graphs()
        step, self._step = self._step, Noted()
        row = StepRow(
            step=self._count,
            time=time.time(),
            ms=None if self._last_end is None else (now - self._last_end) / 1e6,
            cpu_ms=None if self._last_end is None else (cpu - self._last_cpu) / 1e6,
            data_ms=None if step.data_ns is None else step.data_ns / 1e6,
            samples=self._samples,
            tokens=self._tokens,
            skipped=skipped,
            compiled=graphs != self._graphs,
        )
        self._ended.add(row, step, self._last_event, event)
        self._count += 1
        self._graphs = graphs
        self._scaled.forget()
        if self._first_step_seconds is None:
            self._first_step_seconds = self._process_age + (now - self._installed) / 1e9
        if self._profiler is not None:
            row.profiled = self._profiler.step_ended(self._count)
            # What it takes to start and to write a trace is no step's time.
            now, cpu, event = self._clocks()
        self._last_end, self._last_cpu, self._last_event = now, cpu, event
        self._ended.write_in_time(now)
        if self._settings.stop_after is not None and self._count >= self._settings.stop_after:
            # Through the script's own cleaning up, like an exit of its own; every rank ends at the same step.
            raise SystemExit(0)

    def _detach(self) -> None:
        observers.set_current(None)
        for hook in self._hooks:
            hook.remove()

    def give_up(self, error: Exception) -> None:
        """End the metering, and say why, once."""
        if self._problem is None:
            self._problem = f"{type(error).__name__}: {error}"
            _log.warning(
                "metering ended after %d steps, the training goes on: %s; set measure.enabled=false to run without it",
                self._count,
                self._problem,
            )
        self._detach()


@between_graphs
def _optimizer_starts(optimizer: Any, args: Any, kwargs: Any) -> None:
    meter = observers.current()
    if meter is not None:
        meter.optimizer_starts()


@between_graphs
def _optimizer_stepped(optimizer: Any, args: Any, kwargs: Any) -> None:
    meter = observers.current()
    if meter is not None:
        meter.optimizer_stepped(id(optimizer))


def install(settings: Mapping[str, Any], model: Mapping[str, Any], rank_dir: Path) -> Meter | None:
    """Start metering this process; to be called after the engine and before the script.

    Parameters
    ----------
    settings : mapping
        The `measure` group.
    model : mapping
        The `model` group; `batch` says how many samples a step of this rank holds.
    rank_dir : Path
        Where the rows go.

    Returns
    -------
    Meter or None
        None if `measure.enabled` is false.

    Raises
    ------
    MeasureSettingsError
        If a setting is wrong, or a writer needs a package that is not installed.
    """
    checked = MeasureSettings.from_mapping(settings)
    if not checked.enabled:
        return None
    rank = os.environ.get("RANK", "0")
    number = int(rank) if rank.isdigit() else 0
    arguments = sys.argv[1:]
    samples = samples_per_step(model, arguments)
    return Meter(
        checked,
        samples,
        rank_dir,
        number,
        tokens=tokens_per_step(model, arguments, samples),
        operations=operations_per_step(model, samples),
    )


# A forked DataLoader worker, or a forked child that trains by itself, must not write into its parent's files.
os.register_at_fork(after_in_child=functools.partial(observers.set_current, None))
