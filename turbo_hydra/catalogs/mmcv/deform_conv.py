# SPDX-License-Identifier: Apache-2.0
"""Modulated deformable convolution in PyTorch, with the gradients of input, offset, mask, weight and bias.

The image's cells are rows of channels; each tap of the filter at each place of the result reads one point, a weighted
sum of four rows. What is read is the matrix that the filter is multiplied with. It is made again in the backward pass,
as mmcv's own operator does, so that nothing of its size (nine images) is kept.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from importlib.machinery import EXTENSION_SUFFIXES
from typing import Any

import torch
from torch import Tensor
from torch.nn.modules.utils import _pair

from turbo_hydra import fallback, redecorated
from turbo_hydra.catalogs.mmcv.options import DeformConv
from turbo_hydra.catalogs.shared.corners import DTYPES, read_between

Function = Callable[..., Any]
Read = Callable[[Tensor, Tensor, Tensor, Tensor, int], Tensor]


def forward(original: Function, options: DeformConv) -> Function:
    """Factory for `ModulatedDeformConv2dFunction.forward`."""
    return redecorated(original, lambda inner: forward_by("in_pytorch", read_rows, partial(_unfit, options), inner))


def backward(original: Function, options: DeformConv) -> Function:
    """Factory for `ModulatedDeformConv2dFunction.backward`."""
    return redecorated(original, lambda inner: backward_by("in_pytorch", read_rows, inner))


def forward_by(mark: str, read: Read, unfit: Callable[..., str | None], inner: Function) -> Function:
    """A forward that reads in a way of its own where nothing is `unfit`, and marks the context so."""

    def forward(
        ctx: Any,
        input: Tensor,
        offset: Tensor,
        mask: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: int | tuple[int, int] = 1,
        padding: int | tuple[int, int] = 0,
        dilation: int | tuple[int, int] = 1,
        groups: int = 1,
        deform_groups: int = 1,
    ) -> Tensor:
        settings: Any = (stride, padding, dilation, groups, deform_groups)
        reason = unfit(input, offset, mask, weight, *settings)
        setattr(ctx, mark, reason is None)
        if reason is not None:
            fallback(reason)
            result: Tensor = inner(ctx, input, offset, mask, weight, bias, *settings)
            return result
        # As mmcv has it: the precision is the offset's.
        tensors = (input.type_as(offset), offset, mask.type_as(offset), weight.type_as(offset))
        ctx.save_for_backward(*tensors, *(() if bias is None else (bias.type_as(offset),)))
        ctx.settings = settings
        return deform_conv(*tensors, None if bias is None else bias.type_as(offset), *settings, read=read)

    return forward


def backward_by(mark: str, read: Read, inner: Function) -> Function:
    """The backward of `forward_by`: what is read is made again."""

    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        if not getattr(ctx, mark, False):
            fallback("the forward went another way")
            result: tuple[Tensor | None, ...] = inner(ctx, grad_output)
            return result
        needed = ctx.needs_input_grad[: len(ctx.saved_tensors)]
        with torch.enable_grad():
            leaves = [
                item.detach().requires_grad_(wanted) for item, wanted in zip(ctx.saved_tensors, needed, strict=True)
            ]
            image, offset, mask, weight, *bias = leaves
            output = deform_conv(image, offset, mask, weight, bias[0] if bias else None, *ctx.settings, read=read)
        wanted = [item for item in leaves if item.requires_grad]
        found = iter(torch.autograd.grad(output, wanted, grad_output))
        gradients = [next(found) if item.requires_grad else None for item in leaves]
        return (*gradients, *[None] * (10 - len(gradients)))

    return backward


def read_rows(input: Tensor, x: Tensor, y: Tensor, scale: Tensor, deform_groups: int) -> Tensor:
    """What each point reads of an image, by PyTorch's operations.

    Parameters
    ----------
    input : Tensor
        [B, C, H, W].
    x, y : Tensor
        [B, points, deform_groups] in units of cells, 0 in the middle of the first one; zero is read outside.
    scale : Tensor
        Likewise: what is read is multiplied with it.
    deform_groups : int
        Channels of a deform group read at the same places.

    Returns
    -------
    Tensor
        [B, points, C].
    """
    batch, channels, height, width = input.shape
    # Rows of [B, H, W, deform_groups].
    rows = input.permute(0, 2, 3, 1).reshape(-1, channels // deform_groups)
    image = torch.arange(batch, device=input.device).view(-1, 1, 1) * (height * width * deform_groups)
    first = (image + torch.arange(deform_groups, device=input.device)).expand(x.shape)
    # A bag for each image, point and deform group.
    x, y, scale, first = (item.reshape(-1, 1) for item in (x, y, scale, first))
    read = read_between(rows, x, y, scale, width, height, first, deform_groups)
    return read.view(batch, -1, channels)


def deform_conv(
    input: Tensor,
    offset: Tensor,
    mask: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: int | tuple[int, int] = 1,
    padding: int | tuple[int, int] = 0,
    dilation: int | tuple[int, int] = 1,
    groups: int = 1,
    deform_groups: int = 1,
    *,
    read: Read = read_rows,
) -> Tensor:
    """Modulated deformable convolution.

    Parameters
    ----------
    input : Tensor
        [B, C, H, W].
    offset : Tensor
        [B, deform_groups * K * 2, h, w]: how far down, then how far right each of the K taps reads from its place.
    mask : Tensor
        [B, deform_groups * K, h, w]: what is read is multiplied with it.
    weight : Tensor
        [O, C / groups, kernel height, kernel width].
    bias : Tensor or None
        [O].
    stride, padding, dilation, groups, deform_groups
        As for `conv2d`; channels of a deform group share their offsets.
    read : callable
        Reads the image between its cells, as `read_rows` does.

    Returns
    -------
    Tensor
        [B, O, h, w].
    """
    (down, right), (top, left), (spread_down, spread_right) = _pair(stride), _pair(padding), _pair(dilation)
    batch, channels, _, _ = input.shape
    outputs, _, taps_down, taps_right = weight.shape
    high, wide = offset.shape[-2:]
    taps = taps_down * taps_right

    def places(count: int, step: int, before: int, tap: Tensor) -> Tensor:
        """[K, count]: where each tap of each place would read without an offset."""
        return tap.unsqueeze(1) + torch.arange(count, device=input.device) * step - before

    tap_rows = torch.arange(taps_down, device=input.device).repeat_interleave(taps_right) * spread_down
    tap_columns = torch.arange(taps_right, device=input.device).repeat(taps_down) * spread_right
    moved = offset.view(batch, deform_groups, taps, 2, high, wide)
    y = moved[:, :, :, 0] + places(high, down, top, tap_rows).view(taps, high, 1)
    x = moved[:, :, :, 1] + places(wide, right, left, tap_columns).view(taps, 1, wide)
    # A point for each place and tap, in this order: a place's points are a row of the matrix.
    x, y, scale = (
        item.permute(0, 3, 4, 2, 1).reshape(batch, -1, deform_groups)
        for item in (x, y, mask.view(batch, deform_groups, taps, high, wide))
    )
    matrix = read(input, x, y, scale, deform_groups).view(batch * high * wide, taps, groups, channels // groups)
    filters = weight.view(groups, outputs // groups, channels // groups, taps).permute(0, 3, 2, 1)
    parts = [matrix[:, :, part].flatten(1) @ filters[part].flatten(0, 1) for part in range(groups)]
    output = torch.cat(parts, 1) if groups > 1 else parts[0]
    if bias is not None:
        output = output + bias
    return output.view(batch, high, wide, outputs).permute(0, 3, 1, 2).contiguous()


def _unfit(
    options: DeformConv, input: Tensor, offset: Tensor, mask: Tensor, weight: Tensor, *settings: Any
) -> str | None:
    """Why the extension's operator is called, None where it is not."""
    if options.use == "absent" and extension_is_there():
        return "the extension is there"
    if input.dim() != 4 or not all(type(item.detach()) is Tensor for item in (input, offset, mask)):
        return "not an image"
    if input.device.type == "cpu" and offset.dtype not in DTYPES:
        return "neither float32 nor float64"
    return None


def extension_is_there() -> bool:
    """Whether mmcv's operators are compiled code and not what stands in for it."""
    file = getattr(sys.modules.get("mmcv._ext"), "__file__", None)
    return isinstance(file, str) and file.endswith(tuple(EXTENSION_SUFFIXES))
