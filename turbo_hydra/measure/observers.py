# SPDX-License-Identifier: Apache-2.0
"""The wraps through which the meter sees a script; they pass everything on, and change nothing.

They are put in place by the engine before there is a meter, and remain when it is gone: each call asks for it.
Signatures are spelled out because the engine compares them with the originals'. While `torch.compile` traces a call,
they are not there: what would be noted then is no number yet.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from turbo_hydra.measure.meter import Meter

Original = Callable[..., Any]


class _Current:
    """The meter of this process, if one is installed."""

    meter: Meter | None = None


def current() -> Meter | None:
    """The meter of this process."""
    return _Current.meter


def set_current(meter: Meter | None) -> None:
    """Make `meter` the one that the wraps report to."""
    _Current.meter = meter


def _unseen_by_dynamo(wrapper: Original, original: Original) -> Original:
    """Let Dynamo trace the original where it meets the wrapper."""
    wrapper._torchdynamo_inline = original  # type: ignore[attr-defined]
    return wrapper


def observe_backward(original: Original, options: None = None) -> Original:
    """Wrap `torch.autograd.backward`, which `Tensor.backward` calls too: the loss, and that a step is under way."""

    @functools.wraps(original)
    def backward(
        tensors: Any,
        grad_tensors: Any = None,
        retain_graph: Any = None,
        create_graph: bool = False,
        grad_variables: Any = None,
        inputs: Any = None,
    ) -> Any:
        meter = _Current.meter
        if meter is None:
            return original(tensors, grad_tensors, retain_graph, create_graph, grad_variables, inputs)
        meter.backward_started(tensors)
        try:
            return original(tensors, grad_tensors, retain_graph, create_graph, grad_variables, inputs)
        finally:
            meter.backward_ended()

    return _unseen_by_dynamo(backward, original)


def observe_next_batch(original: Original, options: None = None) -> Original:
    """Wrap `__next__` of a DataLoader's iterator: the time the script waits for a batch."""

    @functools.wraps(original)
    def __next__(self: Any) -> Any:
        meter = _Current.meter
        if meter is None:
            return original(self)
        start = meter.data_wait_started()
        try:
            return original(self)
        finally:
            meter.data_wait_ended(start)

    return _unseen_by_dynamo(__next__, original)


def observe_clip(original: Original, options: None = None) -> Original:
    """Wrap `clip_grad_norm_`: the norm that it returns."""

    @functools.wraps(original)
    def clip_grad_norm_(
        parameters: Any,
        max_norm: Any,
        norm_type: Any = 2.0,
        error_if_nonfinite: bool = False,
        foreach: Any = None,
    ) -> Any:
        norm = original(parameters, max_norm, norm_type, error_if_nonfinite, foreach)
        meter = _Current.meter
        if meter is not None:
            meter.norm_computed(norm)
        return norm

    return _unseen_by_dynamo(clip_grad_norm_, original)


def observe_scale(original: Original, options: None = None) -> Original:
    """Wrap `GradScaler.scale`: which loss is behind the scaled one."""

    @functools.wraps(original)
    def scale(self: Any, outputs: Any) -> Any:
        scaled = original(self, outputs)
        meter = _Current.meter
        if meter is not None:
            meter.loss_scaled(outputs, scaled)
        return scaled

    return _unseen_by_dynamo(scale, original)


def observe_scaler_step(original: Original, options: None = None) -> Original:
    """Wrap `GradScaler.step`: the end of a step whose update the scaler leaves out."""

    @functools.wraps(original)
    def step(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, optimizer, *args, **kwargs)
        meter = _Current.meter
        if meter is not None:
            meter.scaler_stepped()
        return result

    return _unseen_by_dynamo(step, original)
