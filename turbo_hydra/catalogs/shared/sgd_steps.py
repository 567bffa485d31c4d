# SPDX-License-Identifier: Apache-2.0
"""SGD decides at every step whether the fused kernel can take it.

Unlike Adam, plain SGD takes sparse gradients, and parameters whose momentum begins later than that of others. Whether
such come cannot be seen when the optimizer is made, and its steps need no state of their own for the fused kernel.

On a CPU the fused kernel is for float32 and float64 only: with bfloat16 and float16 parameters that of torch 2.13 steps
to other places than the plain optimizer, by as much as the steps are long.
"""

from __future__ import annotations

from typing import Any

import torch

from turbo_hydra.catalogs.shared.layout import why_not

_PRECISE = (torch.float32, torch.float64)


def choose_each_step(optimizer: torch.optim.Optimizer) -> None:
    """Let `optimizer`, a `torch.optim.SGD`, use the fused kernel in the steps that it can take."""
    optimizer.register_step_pre_hook(_choose)


def _choose(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    if torch.compiler.is_compiling():
        return
    for group in optimizer.param_groups:
        if group["foreach"] is None and not group["differentiable"]:
            group["fused"] = _fits(optimizer, group) or None


def _fits(optimizer: torch.optim.Optimizer, group: dict[str, Any]) -> bool:
    if isinstance(group["lr"], torch.Tensor) or isinstance(group["weight_decay"], torch.Tensor):
        return False
    held = [item for item in group["params"] if item.grad is not None]
    if any(item.grad.is_sparse or item.grad.stride() != item.stride() or why_not(item) for item in held):
        return False
    if any(item.device.type == "cpu" and item.dtype not in _PRECISE for item in held):
        return False
    if group["momentum"] == 0:
        return True
    momenta = [optimizer.state[item].get("momentum_buffer") for item in held]
    if all(value is None for value in momenta):
        return True
    return all(value is not None and value.stride() == item.stride() for value, item in zip(momenta, held, strict=True))
