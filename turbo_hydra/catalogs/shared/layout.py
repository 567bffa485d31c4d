# SPDX-License-Identifier: Apache-2.0
"""What the fused kernels take for granted: a parameter, its gradient and its state lie in memory alike.

torch's CPU kernels go through the memory of all of them side by side without a look at strides: where a contiguous
gradient meets a `channels_last` parameter, each element is stepped with another's gradient, without a word. On a GPU
the same is an error. torch's plain optimizers read elements by their indices.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

DEVICES = ("cpu", "cuda", "mps", "xpu")
DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


def why_not(tensor: Any) -> str | None:
    """Why the fused kernels do not take a parameter; None if they do."""
    if type(tensor) not in (Tensor, torch.nn.Parameter):
        return "parameters that are not plain tensors"
    if tensor.dtype not in DTYPES or tensor.device.type not in DEVICES:
        return "a parameter without a fused kernel"
    if tensor.layout is not torch.strided or not is_dense(tensor):
        return "a parameter that is not dense in memory"
    return None


def is_dense(tensor: Tensor) -> bool:
    """Whether the elements fill one piece of memory, each element once, in whatever order of dimensions."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


def like(parameter: Tensor, value: Tensor) -> Tensor:
    """The elements of `value` in the order in memory of `parameter`, same shape; `value`'s dtype and device."""
    with torch.no_grad():
        return torch.empty_like(parameter, dtype=value.dtype, device=value.device).copy_(value)


class Layout:
    """A hook before the step of an optimizer made with `fused=True`; lays gradients and state like their parameter.

    Gradients are looked at in every step. The state is made like its parameter; it is looked at when it was loaded
    from a checkpoint, and when parameters were added or laid anew, as their strides tell.
    """

    def __init__(self) -> None:
        self._seen: list[tuple[int, ...]] | None = None

    def forget(self, optimizer: torch.optim.Optimizer) -> None:
        """Called by the optimizer when it has loaded a state: the next step looks at all of it."""
        self._seen = None

    def __call__(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        """Called by the optimizer before it steps."""
        if torch.compiler.is_compiling():
            return
        held = [item for group in optimizer.param_groups for item in group["params"] if item.grad is not None]
        strides = [item.stride() for item in held]
        for parameter, stride in zip(held, strides, strict=True):
            gradient = parameter.grad
            if gradient.layout is torch.strided and gradient.stride() != stride:
                parameter.grad = like(parameter, gradient)
        if strides != self._seen:
            self._seen = strides
            if any(why_not(item) for item in held):  # added to the optimizer, or moved, since it was made
                _unfuse(optimizer)
                return
            for parameter in held:
                _lay_state(parameter, optimizer.state.get(parameter, {}))


def _lay_state(parameter: Tensor, state: dict[str, Any]) -> None:
    for name, value in state.items():
        if isinstance(value, Tensor) and value.shape == parameter.shape and value.stride() != parameter.stride():
            state[name] = like(parameter, value)


def _unfuse(optimizer: torch.optim.Optimizer) -> None:
    for group in optimizer.param_groups:
        group["fused"] = None
    for state in optimizer.state.values():
        if isinstance(state.get("step"), Tensor):
            state["step"] = state["step"].cpu()
