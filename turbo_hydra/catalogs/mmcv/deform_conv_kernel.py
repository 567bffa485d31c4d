# SPDX-License-Identifier: Apache-2.0
"""Modulated deformable convolution whose points are read by the kernel of deformable attention."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from turbo_hydra import redecorated
from turbo_hydra.catalogs.mmcv.deform_conv import Function, backward_by, extension_is_there, forward_by
from turbo_hydra.kernels import language, msda


def forward(original: Function, options: None) -> Function:
    """Factory for `ModulatedDeformConv2dFunction.forward`."""
    return redecorated(original, lambda inner: forward_by("by_kernel", read_by_kernel, _unfit, inner))


def backward(original: Function, options: None) -> Function:
    """Factory for `ModulatedDeformConv2dFunction.backward`."""
    return redecorated(original, lambda inner: backward_by("by_kernel", read_by_kernel, inner))


def read_by_kernel(input: Tensor, x: Tensor, y: Tensor, scale: Tensor, deform_groups: int) -> Tensor:
    """As `deform_conv.read_rows`: each deform group is a head, and each point a query of one point."""
    batch, channels, height, width = input.shape
    value = input.permute(0, 2, 3, 1).reshape(batch, height * width, deform_groups, channels // deform_groups)
    size = torch.tensor([[height, width]]).to(input.device, non_blocking=True)
    start = torch.zeros(1, dtype=torch.int64, device=input.device)
    locations = torch.stack((x, y), -1)[:, :, :, None, None]
    return msda.msda(value, size, start, locations, scale[..., None, None], in_cells=True)


def _unfit(
    input: Tensor, offset: Tensor, mask: Tensor, weight: Tensor, stride: Any, padding: Any, dilation: Any, groups: int,
    deform_groups: int,
) -> str | None:  # fmt: skip
    """Why the kernel does not read the image, None where it does."""
    if extension_is_there():
        return "the extension is there"
    if input.dim() != 4 or offset.dtype == torch.float64 or input.shape[1] // deform_groups > msda.WIDEST:
        return "not an image, float64, or too many channels"
    return language.unfit(input, offset, mask, weight)
