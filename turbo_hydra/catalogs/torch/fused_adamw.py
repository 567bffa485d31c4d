# SPDX-License-Identifier: Apache-2.0
"""`torch.optim.AdamW` with its fused kernel, and checkpoints that do not tell."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from turbo_hydra import fallback

DEVICES = ("cpu", "cuda", "mps", "xpu")
DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


def init(original: Callable[..., None], options: None) -> Callable[..., None]:
    """Factory for `AdamW.__init__`."""

    def __init__(
        self: torch.optim.AdamW,
        params: Any,
        lr: float | Tensor = 1e-3,
        betas: tuple[float | Tensor, float | Tensor] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        settings = {
            "maximize": maximize,
            "foreach": foreach,
            "capturable": capturable,
            "differentiable": differentiable,
        }
        # A generator can be read once only; AdamW and the look at the parameters need it both.
        params = params if isinstance(params, Tensor) else [_kept(item) for item in params]
        reason = _unfit(type(self), params, (lr, *betas), differentiable=differentiable)
        if fused is not None or foreach is not None:
            reason = "the script chose fused or foreach"
        if reason is not None:
            fallback(reason)
            original(self, params, lr, betas, eps, weight_decay, amsgrad, fused=fused, **settings)
            return
        original(self, params, lr, betas, eps, weight_decay, amsgrad, fused=True, **settings)
        # The checkpoint is what the script's own optimizer would write, and what that one wrote can be loaded.
        self.register_state_dict_post_hook(_write_plain)
        self.register_load_state_dict_pre_hook(_read_fused)

    return __init__


def _kept(item: Any) -> Any:
    """A parameter group whose parameters can be read more than once; anything else as it is."""
    if not isinstance(item, dict) or not isinstance(item.get("params"), Iterator):
        return item
    item["params"] = list(item["params"])  # in place: scripts hold on to their groups, as torch does
    return item


def _unfit(kind: type, params: Any, numbers: tuple[Any, ...], *, differentiable: bool) -> str | None:
    """Why the fused kernel is not for this optimizer; None if it is."""
    if differentiable:
        return "differentiable"
    if inspect.unwrap(kind.step) is not inspect.unwrap(torch.optim.AdamW.step):  # type: ignore[attr-defined]
        return "a subclass with a step of its own"
    if any(isinstance(value, Tensor) for value in numbers):
        return "learning rate or betas are tensors"
    groups = [item for item in params if isinstance(item, dict)]
    if any(key in group for group in groups for key in ("fused", "foreach", "differentiable")):
        return "a parameter group chose fused, foreach or differentiable"
    tensors = list(_tensors(params))
    if not all(type(item) in (Tensor, torch.nn.Parameter) for item in tensors):
        return "parameters that are not plain tensors"
    if not all(item.dtype in DTYPES and item.device.type in DEVICES for item in tensors):
        return "a parameter without a fused kernel"
    return None


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
    state = {
        number: {
            # The fused kernel keeps its step count on the parameter's device, the plain one on the host.
            name: value.cpu() if name == "step" and isinstance(value, Tensor) else value
            for name, value in entries.items()
        }
        for number, entries in state_dict["state"].items()
    }
    groups = [{**group, "fused": None} for group in state_dict["param_groups"]]
    return {**state_dict, "state": state, "param_groups": groups}


def _read_fused(optimizer: torch.optim.Optimizer, state_dict: dict[str, Any]) -> dict[str, Any]:
    # A state dict carries settings, and loading takes them over: the fused kernel would be lost without a word.
    chosen = [group["fused"] for group in optimizer.param_groups]
    groups = [
        {**group, "fused": fused, "foreach": None} if fused and not group.get("differentiable") else group
        for group, fused in zip(state_dict["param_groups"], chosen, strict=False)
    ]
    return {**state_dict, "param_groups": groups + state_dict["param_groups"][len(groups) :]}
