# SPDX-License-Identifier: Apache-2.0
"""AdamW's step in one launch for each combination of dtypes, which takes the clip's factor in as it reads gradients.

`clip_grad_norm_` followed by a fused AdamW goes through the gradients three times: norm, scale, step. Here the scale is
put off: what remains of it is a factor, by which the step multiplies each gradient in a register. Between the two the
gradients are as backward left them, which nothing but a reader of `grad` in between would notice.

The factor waits only for parameters that the step before has taken through this kernel; where a step turns out to be
another one (another dtype, a GradScaler's), gradients are scaled first, as the script asked. What cannot be put right
is an error: gradients that are changed between clip and step, when nobody can tell any more what was to be scaled.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from turbo_hydra import fallback
from turbo_hydra.kernels import adamw as kernel
from turbo_hydra.kernels.clip_norm import EPS

NUMBERS = ("lr", "beta1", "beta2", "weight_decay", "eps")


class ChangedGradients(RuntimeError):
    """A gradient was written to, or exchanged, after it had been clipped and before it was stepped with."""

    def __init__(self) -> None:
        super().__init__(
            "turbo_hydra: a gradient was changed between clip_grad_norm_ and the optimizer's step, to which the group "
            "clipped_adamw had put the clipping off: what was to be scaled is gone; switch that group off for this "
            "script"
        )


@dataclass
class _Waiting:
    """A factor that a gradient has still to be multiplied by."""

    factor: Tensor
    gradient: weakref.ref[Tensor]
    version: int


@dataclass
class _State:
    """What clip and step know of each other, in one process."""

    # Parameters that were stepped by the kernel, and the factors that wait for their next step.
    stepped: WeakTensorKeyDictionary = field(default_factory=WeakTensorKeyDictionary)
    waiting: WeakTensorKeyDictionary = field(default_factory=WeakTensorKeyDictionary)
    # By the first of its tensors: the steps that a list of parameters has taken, and the versions that say so.
    steps: WeakTensorKeyDictionary = field(default_factory=WeakTensorKeyDictionary)


_STATE = _State()


def total_norm(original: Callable[..., Tensor], options: None) -> Callable[..., Tensor]:
    """Factory for `torch.nn.utils.clip_grad._get_total_norm`; the norm is of gradients as a clip before left them."""

    @torch.no_grad()
    def _get_total_norm(tensors: Tensor | Iterable[Tensor], *args: Any, **kwargs: Any) -> Tensor:
        tensors = [tensors] if isinstance(tensors, Tensor) else list(tensors)
        if not torch.compiler.is_compiling() and _STATE.waiting:
            own = {id(item) for item in tensors}
            # Those of a step that was left out may be gone; new ones have not been clipped yet.
            _scale(item for item, waiting in list(_STATE.waiting.items()) if id(waiting.gradient()) in own)
        return original(tensors, *args, **kwargs)

    return _get_total_norm


def scale(original: Callable[..., None], options: None) -> Callable[..., None]:
    """Factory for `torch.nn.utils.clip_grad._clip_grads_with_norm_`."""

    @torch.no_grad()
    def _clip_grads_with_norm_(
        parameters: Tensor | Iterable[Tensor],
        max_norm: float,
        total_norm: Tensor,
        foreach: bool | None = None,
    ) -> None:
        parameters = [parameters] if isinstance(parameters, Tensor) else list(parameters)
        held = [(item, item.grad) for item in parameters if item.grad is not None]
        reason = _not_put_off(held, total_norm)
        if reason is not None:
            fallback(reason)
            original(parameters, max_norm, total_norm, foreach)
            return
        factor = torch.clamp(float(max_norm) / (total_norm + EPS), max=1.0).float()
        for item, gradient in held:
            _STATE.waiting[item] = _Waiting(factor, weakref.ref(gradient), gradient._version)

    return _clip_grads_with_norm_


def adam(original: Callable[..., None], options: None) -> Callable[..., None]:
    """Factory for `torch.optim.adam.adam`, which steps all parameters of a group."""

    def _adam(
        params: list[Tensor],
        grads: list[Tensor],
        exp_avgs: list[Tensor],
        exp_avg_sqs: list[Tensor],
        max_exp_avg_sqs: list[Tensor],
        state_steps: list[Tensor],
        *args: Any,
        **kwargs: Any,
    ) -> None:
        reason = _not_this_step(params, grads, exp_avgs, exp_avg_sqs, args, kwargs)
        number = _steps(state_steps) if reason is None else None
        if number is None:
            fallback(reason or "parameters that have taken different numbers of steps")
            for item in params:
                _STATE.stepped.pop(item, None)
            _scale(params)
            original(params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps, *args, **kwargs)
            return
        factor = _handed_on(params)
        torch._foreach_add_(state_steps, 1.0)
        _STATE.steps[state_steps[0]] = (number + 1, _versions(state_steps))
        settings = {name: kwargs[name] for name in (*NUMBERS, "maximize")}
        kernel.adamw(params, grads, exp_avgs, exp_avg_sqs, number + 1, factor=factor, **settings)
        for item in params:
            _STATE.stepped[item] = True

    return _adam


def _not_put_off(held: Sequence[tuple[Tensor, Tensor]], norm: Tensor) -> str | None:
    """Why gradients are scaled at once; None if their step can do it."""
    if torch.compiler.is_compiling():
        return "compiled"
    if not held:
        return "no gradients"
    if not all(item in _STATE.stepped for item, _ in held):
        return "not stepped by the kernel before"
    if any(type(item) is not Tensor for item in (norm, *(gradient for _, gradient in held))):
        return "gradients that are not plain tensors"
    if norm.device != held[0][1].device:
        return "a norm from elsewhere"
    if any(gradient.stride() != item.stride() for item, gradient in held):
        return "gradients that are not laid in memory like their parameters"
    return None  # what else the kernel asks, the step finds out


def _not_this_step(
    params: Sequence[Tensor],
    grads: Sequence[Tensor],
    exp_avgs: Sequence[Tensor],
    exp_avg_sqs: Sequence[Tensor],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> str | None:
    """Why the kernel does not take this step; None if it does."""
    if args or torch.compiler.is_compiling():
        return "called otherwise than by Adam.step"
    if not kwargs.get("decoupled_weight_decay"):
        return "not AdamW"
    if any(kwargs.get(name) for name in ("amsgrad", "capturable", "differentiable", "has_complex")):
        return "amsgrad, capturable, differentiable or complex"
    if kwargs.get("grad_scale") is not None or kwargs.get("found_inf") is not None:
        return "a GradScaler's step"
    if any(isinstance(kwargs[name], Tensor) for name in NUMBERS):
        return "settings that are tensors"
    if any(type(item) not in (Tensor, torch.nn.Parameter) for item in (*params, *grads)):
        return "parameters or gradients that are not plain tensors"
    return kernel.unfit(params, grads, exp_avgs, exp_avg_sqs)


def _steps(tensors: Sequence[Tensor]) -> int | None:
    """The steps taken, the same by all tensors, None if they differ; read from the device when others than we write."""
    known = _STATE.steps.get(tensors[0])
    if known is not None and known[1] == _versions(tensors):
        return int(known[0])
    values = set(torch.stack([item.reshape(()) for item in tensors]).tolist())
    return int(values.pop()) if len(values) == 1 else None


def _versions(tensors: Sequence[Tensor]) -> list[tuple[int, int]]:
    return [(id(item), item._version) for item in tensors]


def _handed_on(params: Sequence[Tensor]) -> Tensor | None:
    """The factor that waits for all of these gradients, None if there is none; where there are several, scale them."""
    found = [_STATE.waiting.get(item) for item in params]
    factors = {None if waiting is None else id(waiting.factor) for waiting in found}
    if factors == {None}:
        return None
    if len(factors) > 1 or found[0] is None:
        _scale(params)
        return None
    for item in params:
        _taken(item)
    factor: Tensor = found[0].factor
    return factor


def _taken(parameter: Tensor) -> Tensor | None:
    """Forget what waits for a parameter's gradient and return its factor, None if nothing does."""
    waiting: _Waiting | None = _STATE.waiting.pop(parameter, None)
    if waiting is None:
        return None
    gradient = waiting.gradient()
    if gradient is None or gradient is not parameter.grad or gradient._version != waiting.version:
        raise ChangedGradients
    return waiting.factor


@torch.no_grad()
def _scale(parameters: Iterable[Tensor]) -> None:
    """Multiply gradients by the factors that wait for them."""
    together: dict[int, tuple[Tensor, list[Tensor]]] = {}
    for parameter in parameters:
        factor = _taken(parameter)
        if factor is not None and parameter.grad is not None:
            together.setdefault(id(factor), (factor, []))[1].append(parameter.grad)
    for factor, gradients in together.values():
        torch._foreach_mul_(gradients, factor)
