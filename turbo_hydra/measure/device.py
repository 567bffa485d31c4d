# SPDX-License-Identifier: Apache-2.0
"""Numbers and times that live on a device, read without making the training wait.

On a CPU a scalar is read at once. On CUDA (HCU presents itself as CUDA) it is copied on the device, for scripts and
CUDA graphs write into the same memory again, and brought over later on a stream of its own, when the event at the end
of its step has passed: nothing ever waits for work that the script has queued.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import torch

# Parts of torch that have no annotations.
_cuda: Any = torch.cuda


def in_use() -> bool:
    """Whether the script has initialised CUDA; the meter never does."""
    return bool(_cuda.is_initialized())


class Scalar:
    """A number that is known, or will be once its step's event has passed."""

    __slots__ = ("tensor", "value")

    def __init__(self, value: float | None = None, tensor: torch.Tensor | None = None) -> None:
        self.value = value
        self.tensor = tensor


def observe(value: object) -> Scalar | None:
    """Take note of a tensor with one element, or of a number.

    Returns
    -------
    Scalar or None
        None for what is no scalar, and for tensors whose value cannot be read by this process alone (a DTensor's needs
        a collective) or not now (a CUDA graph is being captured).
    """
    if isinstance(value, (int, float)):
        return Scalar(float(value))
    if not isinstance(value, torch.Tensor):
        value = getattr(value, "tensor", value)  # a number that is read late holds the tensor that it will be read from
    if not isinstance(value, torch.Tensor) or value.numel() != 1 or value.is_complex():
        return None
    if hasattr(type(value), "__tensor_flatten__") or value.is_meta:
        return None
    if value.device.type == "cpu":
        return Scalar(float(value.item()))
    if value.device.type != "cuda":
        # Other devices have no events here; read late all the same.
        return Scalar(tensor=value.detach().reshape(()).clone())
    if torch.cuda.is_current_stream_capturing():
        return None
    # One kernel: the copy and the widening, so that numbers of all dtypes can be brought over in one piece.
    return Scalar(tensor=value.detach().reshape(()).to(torch.float64, copy=True))


class Device:
    """The clock and the late reader of the CUDA device of this process."""

    def __init__(self) -> None:
        self._events: list[torch.cuda.Event] = []
        self._streams: dict[int, torch.cuda.Stream] = {}

    @property
    def ready(self) -> bool:
        """Whether the script uses CUDA, and not just now to capture a graph."""
        return in_use() and not torch.cuda.is_current_stream_capturing()

    def mark(self) -> torch.cuda.Event:
        """An event at the end of what is queued now."""
        event: torch.cuda.Event = self._events.pop() if self._events else _cuda.Event(enable_timing=True)
        event.record()
        return event

    def release(self, event: torch.cuda.Event) -> None:
        """Give back an event that nobody asks again."""
        self._events.append(event)

    def read(self, scalars: Sequence[Scalar]) -> None:
        """Bring over the values of scalars whose step has passed on the device.

        A value that a dead device holds is None ever after: the error is the script's and stays the script's.
        """
        by_device: dict[torch.device, list[Scalar]] = {}
        for scalar in scalars:
            if scalar.tensor is not None:
                by_device.setdefault(scalar.tensor.device, []).append(scalar)
        for device, group in by_device.items():
            try:
                with self._side_stream(device):
                    values = torch.stack([scalar.tensor for scalar in group if scalar.tensor is not None]).tolist()
            except RuntimeError:
                values = [None] * len(group)
            for scalar, value in zip(group, values, strict=True):
                scalar.value, scalar.tensor = value, None

    def _side_stream(self, device: torch.device) -> contextlib.AbstractContextManager[Any]:
        if device.type != "cuda":
            return contextlib.nullcontext()
        index = device.index or 0
        if index not in self._streams:
            self._streams[index] = _cuda.Stream(device)
        return torch.cuda.stream(self._streams[index])


def passed(event: Any) -> bool:
    """Whether a step's work on the device is done; a step without an event has none."""
    try:
        return event is None or bool(event.query())
    except RuntimeError:
        return True


def wait(event: Any) -> None:
    """Wait for a step's work on the device, where there is any; a device that is dead is not waited for."""
    if event is not None:
        with contextlib.suppress(RuntimeError):
            event.synchronize()


def elapsed_ms(start: Any, end: Any) -> float | None:
    """Time between two events that have passed, in milliseconds; None where there is no such time."""
    if start is None or end is None:
        return None
    try:
        return float(start.elapsed_time(end))
    except RuntimeError:
        return None
