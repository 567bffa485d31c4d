# SPDX-License-Identifier: Apache-2.0
"""2D convolutions that read and write images with their channels last, as fast kernels want them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from turbo_hydra import fallback
from turbo_hydra.catalogs.torch.options import ChannelsLast


def conv_forward(original: Callable[..., Tensor], options: ChannelsLast) -> Callable[..., Tensor]:
    """Factory for `Conv2d._conv_forward`: lays the input; the output follows, and so do layers that keep the layout."""

    def _conv_forward(self: Any, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        reason = _unfit(input, options)
        if reason is not None:
            fallback(reason)
            return original(self, input, weight, bias)
        return original(self, input.contiguous(memory_format=torch.channels_last), weight, bias)

    return _conv_forward


def _unfit(input: Any, options: ChannelsLast) -> str | None:
    """Why the layout is not for this input; None if it is. Looks at metadata only."""
    if input.dim() != 4:
        return "an image without a batch"
    if not input.is_floating_point() or input.layout is not torch.strided:
        return "an input that is no dense floating-point image"
    if input.shape[1] < options.min_channels:
        return "fewer channels than min_channels"
    return None
