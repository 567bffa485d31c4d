# SPDX-License-Identifier: Apache-2.0
"""`torch.optim.AdamW`, `Adam` and `SGD` with their fused kernels, and checkpoints that do not tell.

The targets are the constructors. An optimizer stays as it is where the script chose `fused` or `foreach`, for all
parameters or for a group of them, where it is differentiable, steps in its own way, has a learning rate or betas that
are tensors, or a parameter that the kernels do not take.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from turbo_hydra import fallback
from turbo_hydra.catalogs.shared.layout import Layout, why_not
from turbo_hydra.catalogs.shared.options import FusedOptimizer
from turbo_hydra.catalogs.shared.sgd_steps import choose_each_step

Init = Callable[..., None]


def adamw(original: Init, options: FusedOptimizer) -> Init:
    """Factory for `AdamW.__init__`."""
    return _init(original, options, torch.optim.AdamW)


def adam(original: Init, options: FusedOptimizer) -> Init:
    """Factory for `Adam.__init__`."""
    return _init(original, options, torch.optim.Adam)


def sgd(original: Init, options: FusedOptimizer) -> Init:
    """Factory for `SGD.__init__`."""
    return _init(original, options, torch.optim.SGD)


def _init(original: Init, options: FusedOptimizer, kind: type[torch.optim.Optimizer]) -> Init:
    unknown = sorted(set(options.optimizers) - {"AdamW", "Adam", "SGD"})
    if unknown:
        raise ValueError(f"optimizers names {', '.join(unknown)}; what has a fused kernel here is AdamW, Adam and SGD")
    parameters = inspect.signature(original).parameters

    def __init__(self: torch.optim.Optimizer, params: Any, *args: Any, **kwargs: Any) -> None:
        # A generator can be read once only; the optimizer and the look at the parameters need it both.
        params = params if isinstance(params, Tensor) else [_kept(item) for item in params]
        given = {**dict(zip(list(parameters)[2:], args, strict=False)), **kwargs}
        reason = "left out by an option"
        if kind.__name__ in options.optimizers:
            reason = _inner(type(self), kind) or _chosen(given) or _unfit(type(self), kind, params) or ""
        if reason:
            fallback(reason)
            original(self, params, *args, **kwargs)
            return
        if kind is torch.optim.SGD:
            original(self, params, *args, **kwargs)
            choose_each_step(self)
        else:
            original(self, params, *args, **{**kwargs, "fused": True})
            # A GradScaler unscales for it as for the script's own optimizer; clipping after that stays possible.
            self._step_supports_amp_scaling = False  # type: ignore[attr-defined]
            layout = Layout()
            self.register_step_pre_hook(layout)
            self.register_load_state_dict_post_hook(layout.forget)
            self.register_load_state_dict_pre_hook(_read_fused)
        # The checkpoint is what the script's own optimizer would write, and what that one wrote can be loaded.
        self.register_state_dict_post_hook(_write_plain)

    return __init__


def _kept(item: Any) -> Any:
    """A parameter group whose parameters can be read more than once; anything else as it is."""
    if not isinstance(item, dict) or not isinstance(item.get("params"), Iterator):
        return item
    item["params"] = list(item["params"])  # in place: scripts hold on to their groups, as torch does
    return item


def _inner(own: type[torch.optim.Optimizer], kind: type[torch.optim.Optimizer]) -> str | None:
    """Whether another target's constructor calls this one: AdamW is a subclass of Adam since torch 2.7."""
    inner = kind is torch.optim.Adam and issubclass(own, torch.optim.AdamW)
    return "part of AdamW, which is asked itself" if inner else None


def _chosen(given: dict[str, Any]) -> str | None:
    """What the caller decided, if that leaves no choice; None otherwise."""
    if given.get("fused") is not None or given.get("foreach") is not None:
        return "the script chose fused or foreach"
    if given.get("differentiable"):
        return "differentiable"
    numbers = (given.get("lr"), given.get("weight_decay"), *(given.get("betas") or ()))
    if any(isinstance(value, Tensor) for value in numbers):
        return "learning rate, betas or weight decay are tensors"
    return None


def _unfit(own: type[torch.optim.Optimizer], kind: type[torch.optim.Optimizer], params: Any) -> str | None:
    """Why the fused kernel is not for an optimizer of class `own`; None if it is."""
    if inspect.unwrap(own.step) is not inspect.unwrap(kind.step):
        return "a subclass with a step of its own"
    groups = [item for item in params if isinstance(item, dict)]
    if any(
        key in group for group in groups for key in ("fused", "foreach")
    ):  # None is a choice too: it is not filled in
        return "a parameter group chose fused or foreach"
    if any(group.get("differentiable") for group in groups):
        return "a differentiable parameter group"
    if any(isinstance(value, Tensor) for group in groups for value in _numbers(group)):
        return "learning rate, betas or weight decay are tensors"
    return next(filter(None, map(why_not, _tensors(params))), None)


def _numbers(group: dict[str, Any]) -> tuple[Any, ...]:
    return (group.get("lr"), group.get("weight_decay"), *(group.get("betas") or ()))


def _tensors(params: Any) -> Iterator[Any]:
    """All parameters, whichever way they were given: tensors, (name, tensor) pairs, or groups of either."""
    for item in params:
        if isinstance(item, dict):
            inner = item.get("params", ())
            yield from (inner,) if isinstance(inner, Tensor) else _tensors(inner)
        elif isinstance(item, tuple):
            yield item[-1]
        else:
            yield item


def _write_plain(optimizer: torch.optim.Optimizer, state_dict: dict[str, Any]) -> dict[str, Any]:
    settings = state_dict["param_groups"]
    capturable = {number for group in settings if group.get("capturable") for number in group["params"]}
    state = {
        number: {
            # The fused kernel keeps its step count on the parameter's device, the plain one on the host.
            name: value.cpu() if name == "step" and isinstance(value, Tensor) and number not in capturable else value
            for name, value in entries.items()
        }
        for number, entries in state_dict["state"].items()
    }
    return {**state_dict, "state": state, "param_groups": [{**group, "fused": None} for group in settings]}


def _read_fused(optimizer: torch.optim.Optimizer, state_dict: dict[str, Any]) -> dict[str, Any]:
    # A state dict carries settings, and loading takes them over: the fused kernel would be lost without a word.
    chosen = [group["fused"] for group in optimizer.param_groups]
    groups = [
        {**group, "fused": fused, "foreach": None} if fused and not group.get("differentiable") else group
        for group, fused in zip(state_dict["param_groups"], chosen, strict=False)
    ]
    return {**state_dict, "param_groups": groups + state_dict["param_groups"][len(groups) :]}
