# SPDX-License-Identifier: Apache-2.0
"""GridMask on a CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from turbo_hydra import fallback

Forward = Callable[[Any, Tensor], Tensor]


class _Staying(TorchFunctionMode):
    """`Tensor.cuda` gives the tensor itself."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return args[0] if func is torch.Tensor.cuda else func(*args, **(kwargs or {}))


def forward(original: Forward, options: None) -> Forward:
    """Factory for `GridMask.forward`, which runs as it is: the mask that it makes stays with the images."""

    def forward(self: Any, x: Tensor) -> Tensor:
        if x.device.type != "cpu":
            fallback("images on an accelerator")
            return original(self, x)
        with _Staying():
            return original(self, x)

    return forward
