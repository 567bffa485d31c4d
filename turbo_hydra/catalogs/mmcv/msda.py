# SPDX-License-Identifier: Apache-2.0
"""Multi-scale deformable attention: the Triton kernel on a device, sums of weighted rows on a CPU.

mmcv has it twice: a function of `grid_sample`s, and an autograd Function of its extension, of which models keep copies.
The factories here serve either, wherever it stands.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from turbo_hydra import fallback, redecorated
from turbo_hydra.catalogs.shared.corners import DTYPES, read_between
from turbo_hydra.kernels import msda as kernel

Function = Callable[..., Any]


def pytorch_path(original: Function, options: None) -> Function:
    """Factory for `multi_scale_deformable_attn_pytorch`."""

    def multi_scale_deformable_attn_pytorch(
        value: Tensor,
        value_spatial_shapes: Tensor,
        sampling_locations: Tensor,
        attention_weights: Tensor,
    ) -> Tensor:
        tensors = (value, sampling_locations, attention_weights)
        shapes = value_spatial_shapes
        if isinstance(shapes, Tensor) and shapes.device == value.device and shapes.dim() == 2:
            starts = shapes.prod(1).cumsum(0) - shapes.prod(1)
            if kernel.unfit(value, shapes, starts, sampling_locations, attention_weights) is None:
                output: Tensor = kernel.msda(value, shapes, starts, sampling_locations, attention_weights)
                return output
        reason = unfit_for_rows(*tensors)
        if reason is None:
            sizes = [(int(high), int(wide)) for high, wide in shapes]
            if sum(map(math.prod, sizes)) != value.shape[1]:
                reason = "maps that are not all of value"
        if reason is not None:
            fallback(reason)
            result: Tensor = original(value, value_spatial_shapes, sampling_locations, attention_weights)
            return result
        return by_rows(value, sizes, sampling_locations, attention_weights)

    return multi_scale_deformable_attn_pytorch


def function_forward(original: Function, options: None) -> Function:
    """Factory for the forward of an autograd Function around `ms_deform_attn_forward`."""
    return redecorated(original, _forward)


def function_backward(original: Function, options: None) -> Function:
    """Factory for its backward."""
    return redecorated(original, _backward)


def _forward(inner: Function) -> Function:
    def forward(
        ctx: Any,
        value: Tensor,
        value_spatial_shapes: Tensor,
        value_level_start_index: Tensor,
        sampling_locations: Tensor,
        attention_weights: Tensor,
        im2col_step: int,
    ) -> Tensor:
        tensors = (value, value_spatial_shapes, value_level_start_index, sampling_locations, attention_weights)
        reason = kernel.unfit(*tensors)
        ctx.by_kernel = reason is None
        if reason is not None:
            fallback(reason)
            result: Tensor = inner(ctx, *tensors, im2col_step)
            return result
        ctx.save_for_backward(*tensors)
        output: Tensor = kernel.sample(*tensors, torch.are_deterministic_algorithms_enabled())
        return output

    return forward


def _backward(inner: Function) -> Function:
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        if not getattr(ctx, "by_kernel", False):
            fallback("the forward took the extension")
            result: tuple[Tensor | None, ...] = inner(ctx, grad_output)
            return result
        deterministic = torch.are_deterministic_algorithms_enabled()
        for_value, for_locations, for_weights = kernel.sample_backward(grad_output, *ctx.saved_tensors, deterministic)
        return for_value, None, None, for_locations, for_weights, None

    return backward


def unfit_for_rows(value: Tensor, sampling_locations: Tensor, attention_weights: Tensor) -> str | None:
    """Why these tensors are not summed by rows, None where they are."""
    tensors = (value, sampling_locations, attention_weights)
    if not all(type(item) is Tensor and item.device.type == "cpu" for item in tensors):
        return "neither on a CPU nor for the kernel"
    if value.dtype not in DTYPES or not all(item.dtype == value.dtype for item in tensors):
        return "neither float32 nor float64 throughout"
    if any(item.numel() == 0 for item in tensors):
        return "nothing to read"
    return None


def by_rows(
    value: Tensor, sizes: list[tuple[int, int]], sampling_locations: Tensor, attention_weights: Tensor
) -> Tensor:
    """[B, Q, H * D]: each query and head is one sum over levels, points and the four cells around each.

    `value` is [B, S, H, D], locations [B, Q, H, L, P, 2] from 0 to 1, weights [B, Q, H, L, P]; `sizes` are heights and
    widths of the maps, which lie one after the other in S.
    """
    batch, cells, heads, width = value.shape
    queries, levels, points = (sampling_locations.shape[axis] for axis in (1, 3, 4))
    bags = batch * queries * heads
    areas = [math.prod(size) for size in sizes]
    # Of each level, for each of its points.
    high, wide, start = (
        torch.tensor(numbers).repeat_interleave(points)
        for numbers in zip(*[(*size, sum(areas[:level])) for level, size in enumerate(sizes)], strict=True)
    )
    x, y = sampling_locations.unbind(-1)
    # Rows of [B, S, H]: those of one image and head are `heads` apart.
    of_image = torch.arange(batch).view(-1, 1, 1) * (cells * heads) + torch.arange(heads)
    first = of_image.expand(batch, queries, heads).reshape(bags, 1) + start * heads
    output = read_between(
        value.reshape(-1, width),
        x.reshape(bags, levels * points) * wide - 0.5,
        y.reshape(bags, levels * points) * high - 0.5,
        attention_weights.reshape(bags, levels * points),
        wide,
        high,
        first.int() if value.numel() // width < 2**31 else first,
        heads,
    )
    return output.view(batch, queries, heads * width)
