# SPDX-License-Identifier: Apache-2.0
"""The meter: sees the steps of whatever PyTorch script this process runs.

It is told of events by torch's global optimizer hooks and by the wraps of `observers`. While the script runs it only
notes: clock readings, references to scalars, events on the device. Every `interval` seconds, at the end of a step, it
turns into rows what the device has finished by then.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from turbo_hydra.measure import compiling, device, observers
from turbo_hydra.measure.batch import operations_per_step, samples_per_step, tokens_per_step
from turbo_hydra.measure.boundaries import StepBoundaries
from turbo_hydra.measure.history import History
from turbo_hydra.measure.memory import peak_device_bytes, peak_host_bytes
from turbo_hydra.measure.profiling import StepProfiler
from turbo_hydra.measure.progress import open_progress
from turbo_hydra.measure.rows import StepRow
from turbo_hydra.measure.settings import MeasureSettings
from turbo_hydra.measure.writers import open_writers

_log = logging.getLogger(__name__)
# A queue of ended steps longer than this is written out whatever the clock says: it holds tensors on the device.
LONGEST_QUEUE = 512
# Losses that a GradScaler scaled since the last step; more than a script calls backward on before it updates.
MOST_SCALED = 32
Method = TypeVar("Method", bound=Callable[..., Any])


_guarded: list[str] = []


def _harmless(method: Method) -> Method:
    """Let no fault of the meter (a full disk, a surprise in the script's tensors) reach the training.

    It ends the meter. Nor does the compiler reach into the method.
    """
    _guarded.append(method.__name__)

    @functools.wraps(method)
    def guarded(self: Meter, *args: Any) -> Any:
        if _Compiler.unseen and compiling.in_use():
            _Compiler.unseen = False
            compiling.shield(Meter, _guarded, (_optimizer_starts, _optimizer_stepped))
        try:
            return method(self, *args)
        except Exception as error:
            self._give_up(error)
            return None

    return guarded  # type: ignore[return-value]


class _Compiler:
    """Whether what is called in the midst of a step still has to be shielded from `torch.compile`."""

    unseen = True


@dataclass
class _Step:
    """What is noted of the step under way."""

    losses: list[device.Scalar] = field(default_factory=list)
    closure_loss: device.Scalar | None = None
    grad_norm: device.Scalar | None = None
    data_ns: int | None = None

    def scalars(self) -> list[device.Scalar]:
        """The losses that count: of an optimizer's closure, only the first evaluation is the script's loss."""
        return self.losses if self.closure_loss is None else [*self.losses, self.closure_loss]


@dataclass
class _Ended:
    """A step that waits for the device and for the next writing."""

    row: StepRow
    step: _Step
    start: torch.cuda.Event | None
    end: torch.cuda.Event | None


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
        self._rank = rank
        self._writers = open_writers(settings.writers, folder)
        self._progress = open_progress(settings.progress, settings.progress_interval, rank)
        self._profiler = StepProfiler(settings.profile, folder) if settings.profile else None
        self._boundaries = StepBoundaries(settings.step_every)
        self._history = History(settings.warmup, operations=operations, peak_tflops=settings.peak_tflops)
        self._device = device.Device()
        self._thread = threading.get_ident()
        self._installed = time.perf_counter_ns()
        self._process_age = _process_age_seconds()
        self._first_step_seconds: float | None = None
        self._last_end: int | None = None
        self._last_cpu = 0
        self._last_event: torch.cuda.Event | None = None
        self._next_write = self._installed
        self._count = 0
        self._graphs = compiling.compiled_graphs()
        self._backward_depth = 0
        self._waiting = False
        self._updating = False
        self._scaled: list[tuple[weakref.ref[torch.Tensor], torch.Tensor, torch.Tensor]] = []
        self._step = _Step()
        self._ended: deque[_Ended] = deque()
        self._problem: str | None = None
        self._hooks = [
            register_optimizer_step_pre_hook(_optimizer_starts),
            register_optimizer_step_post_hook(_optimizer_stepped),
        ]
        observers.set_current(self)

    # What the wraps and hooks call

    @_harmless
    def backward_started(self, tensors: Any) -> None:
        """`backward` was called on these; calls from within a backward (a re-entrant checkpoint) are part of it."""
        self._backward_depth += 1
        if self._backward_depth > 1:
            return
        self._boundaries.backward()
        several = tensors if isinstance(tensors, (list, tuple)) else (tensors,)
        for tensor in several:
            scalar = device.observe(self._unscaled(tensor))
            if scalar is None:
                continue
            if not self._updating:
                self._step.losses.append(scalar)
            elif self._step.closure_loss is None:
                self._step.closure_loss = scalar

    @_harmless
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

    @_harmless
    def norm_computed(self, norm: Any) -> None:
        """Gradients were clipped; with several clips in a step the last counts."""
        self._step.grad_norm = device.observe(norm)

    @_harmless
    def loss_scaled(self, outputs: Any, scaled: Any) -> None:
        """A `GradScaler` made `scaled` of `outputs`; the latter are the script's own numbers."""
        pairs = zip(outputs, scaled, strict=True) if isinstance(scaled, (list, tuple)) else [(outputs, scaled)]
        for own, product in pairs:
            if isinstance(product, torch.Tensor) and product.numel() == 1:
                # Without their graphs, which would keep activations alive.
                self._scaled.append((weakref.ref(product), own.detach(), product.detach()))
        del self._scaled[:-MOST_SCALED]

    @_harmless
    def scaler_stepped(self) -> None:
        """`GradScaler.step` returned; without an update inside it, it skipped one."""
        if self._boundaries.scaler():
            self._end_step(skipped=True)

    def optimizer_starts(self) -> None:
        """An optimizer's `step()` is entered: a backward in it is its closure's."""
        self._updating = True

    @_harmless
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

    @_harmless
    def flush(self) -> None:
        """Write all steps that have ended, and wait for the device where it has not finished them."""
        self._write(everything=True)
        self._history.finish()

    def close(self) -> None:
        """Write what is left and let go of torch; may be called twice."""
        if observers.current() is not self:
            return
        self._detach()
        try:
            if self._profiler is not None:
                self._profiler.close(self._count)
            self._write(everything=True)
        except Exception as error:
            self._give_up(error)
        self._history.finish()
        for part in (self._progress, *self._writers):
            if part is not None:
                # A full disk, which was reported when it was met.
                with contextlib.suppress(OSError):
                    part.close()

    # Within

    def _unscaled(self, tensor: Any) -> Any:
        if not self._scaled or not isinstance(tensor, torch.Tensor) or tensor.numel() != 1:
            return tensor
        for reference, own, _ in reversed(self._scaled):
            if reference() is tensor:
                return own
        # The script went on computing with the scaled loss (divided it for accumulation).
        _, own, product = self._scaled[-1]
        return tensor.detach() * (own / product)

    def _end_step(self, skipped: bool) -> None:
        now = time.perf_counter_ns()
        cpu = time.process_time_ns()
        event = self._device.mark() if self._device.ready else None
        graphs = compiling.compiled_graphs()
        step, self._step = self._step, _Step()
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
        self._ended.append(_Ended(row, step, self._last_event, event))
        self._count += 1
        self._graphs = graphs
        self._scaled.clear()
        if self._first_step_seconds is None:
            self._first_step_seconds = self._process_age + (now - self._installed) / 1e9
        self._last_end, self._last_cpu, self._last_event = now, cpu, event
        if self._profiler is not None:
            row.profiled = self._profiler.step_ended(self._count)
        if now >= self._next_write or len(self._ended) >= LONGEST_QUEUE:
            self._write(everything=False)
            self._next_write = time.perf_counter_ns() + int(self._settings.interval * 1e9)
        if self._settings.stop_after is not None and self._count >= self._settings.stop_after:
            # Through the script's own cleaning up, like an exit of its own; every rank ends at the same step.
            raise SystemExit(0)

    def _write(self, everything: bool) -> None:
        done: list[_Ended] = []
        if everything and self._ended:
            # What is left is read on a stream of its own, which does not wait for the script's.
            device.wait(self._ended[-1].end)
        while self._ended and (everything or device.passed(self._ended[0].end)):
            done.append(self._ended.popleft())
        if not done:
            return
        self._device.read(
            [
                scalar
                for ended in done
                for scalar in (*ended.step.scalars(), *([ended.step.grad_norm] if ended.step.grad_norm else []))
            ]
        )
        for ended in done:
            _fill(ended)
            if ended.start is not None:
                self._device.release(ended.start)
        rows = [ended.row for ended in done]
        _note_memory(rows[-1])
        self._history.add(rows)
        for writer in self._writers:
            writer.write(rows)
        if self._progress is not None:
            self._progress.show(rows)

    def _detach(self) -> None:
        observers.set_current(None)
        for hook in self._hooks:
            hook.remove()

    def _give_up(self, error: Exception) -> None:
        if self._problem is None:
            self._problem = f"{type(error).__name__}: {error}"
            _log.warning(
                "metering ended after %d steps, the training goes on: %s; set measure.enabled=false to run without it",
                self._count,
                self._problem,
            )
        self._detach()


def _fill(ended: _Ended) -> None:
    values = [scalar.value for scalar in ended.step.scalars() if scalar.value is not None]
    if values:
        ended.row.loss = sum(values)
        ended.row.losses = values if len(values) > 1 else None
    if ended.step.grad_norm is not None:
        ended.row.grad_norm = ended.step.grad_norm.value
    ended.row.device_ms = device.elapsed_ms(ended.start, ended.end)


def _note_memory(row: StepRow) -> None:
    row.peak_host_bytes = peak_host_bytes()
    memory = peak_device_bytes()
    if memory is not None:
        row.peak_allocated_bytes, row.peak_reserved_bytes = memory


def _optimizer_starts(optimizer: Any, args: Any, kwargs: Any) -> None:
    meter = observers.current()
    if meter is not None:
        meter.optimizer_starts()


def _optimizer_stepped(optimizer: Any, args: Any, kwargs: Any) -> None:
    meter = observers.current()
    if meter is not None:
        meter.optimizer_stepped(id(optimizer))


def _process_age_seconds() -> float:
    """Time since this process was started; 0 where the system does not tell."""
    try:
        started = Path("/proc/self/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()[19]
        uptime = Path("/proc/uptime").read_text(encoding="ascii").split()[0]
    except (OSError, IndexError):
        return 0.0
    return max(0.0, float(uptime) - int(started) / os.sysconf("SC_CLK_TCK"))


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
