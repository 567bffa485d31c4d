# SPDX-License-Identifier: Apache-2.0
"""Multi-scale deformable attention: each query reads a few points of each feature map, between its cells.

Nothing is copied to the host: shapes and starts of the maps are read where they are. The gradient of the maps is a sum
in whatever order the programs run, unless it is asked to be the same in each run; then it is summed in integers.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from . import language
from . import msda_kernels as kernels
from .configurations import launch, width_class
from .language import INTERPRETED, accumulates, accumulator, cdiv, on, power_of_two

# Channels of a head, at most.
WIDEST = 512


def msda_plain(
    value: torch.Tensor,
    spatial_shapes: torch.Tensor,
    level_start_index: torch.Tensor,
    sampling_locations: torch.Tensor,
    attention_weights: torch.Tensor,
    in_cells: bool = False,
) -> torch.Tensor:
    """The library's path, a `grid_sample` for each map; the reference where the tensors are float64."""
    batch, _, heads, width = value.shape
    queries, points = sampling_locations.shape[1], sampling_locations.shape[4]
    dtype = torch.promote_types(torch.promote_types(value.dtype, sampling_locations.dtype), attention_weights.dtype)
    locations = sampling_locations.to(dtype)
    if in_cells:
        locations = (locations + 0.5) / spatial_shapes.to(locations).flip(1)[:, None]
    grids = 2 * locations - 1
    sampled = []
    for level, (height, across) in enumerate(spatial_shapes.tolist()):
        start = int(level_start_index[level])
        cells = value[:, start : start + height * across].to(dtype)
        image = cells.permute(0, 2, 3, 1).reshape(batch * heads, width, height, across)
        grid = grids[:, :, :, level].transpose(1, 2).flatten(0, 1)
        sampled.append(functional.grid_sample(image, grid, align_corners=False))
    weights = attention_weights.to(dtype).transpose(1, 2).reshape(batch * heads, 1, queries, len(sampled) * points)
    points_read = torch.stack(sampled, -2).reshape(batch * heads, width, queries, len(sampled) * points)
    out = (points_read * weights).sum(-1).view(batch, heads * width, queries).transpose(1, 2)
    return out.contiguous().to(value.dtype)


def unfit(
    value: torch.Tensor,
    spatial_shapes: torch.Tensor,
    level_start_index: torch.Tensor,
    sampling_locations: torch.Tensor,
    attention_weights: torch.Tensor,
) -> str | None:
    """Why the kernels do not take these tensors, None where they do."""
    if value.dim() != 4 or sampling_locations.dim() != 6 or sampling_locations.shape[:5] != attention_weights.shape:
        return "value, locations and weights are not [B, S, H, D], [B, Q, H, L, P, 2] and [B, Q, H, L, P]"
    batch, _, heads, width = value.shape
    if attention_weights.shape[0] != batch or attention_weights.shape[2] != heads:
        return "value and locations differ in batch or heads"
    levels = attention_weights.shape[3]
    if spatial_shapes.shape != (levels, 2) or level_start_index.shape != (levels,):
        return "shapes and starts are not [L, 2] and [L]"
    if spatial_shapes.device != value.device or level_start_index.device != value.device:
        return "shapes or starts are on another device"
    if value.numel() == 0 or attention_weights.numel() == 0 or width > WIDEST or sampling_locations.shape[5] != 2:
        return f"nothing to read, or heads larger than {WIDEST}"
    if value.dtype == torch.float64 and not INTERPRETED:
        return "float64"
    return language.unfit(value, sampling_locations, attention_weights)


def msda(
    value: torch.Tensor,
    spatial_shapes: torch.Tensor,
    level_start_index: torch.Tensor,
    sampling_locations: torch.Tensor,
    attention_weights: torch.Tensor,
    deterministic: bool | None = None,
    in_cells: bool = False,
) -> torch.Tensor:
    """Sum over levels and points of weight * value between the cells, as grid_sample(align_corners=False) reads it.

    Parameters
    ----------
    value : Tensor
        [B, S, H, D], D at most 512: the maps' cells one after the other, S at least the sum of height * width.
    spatial_shapes : Tensor
        Integers [L, 2]: height and width of each map. Cells that would lie beyond S are read as zero.
    level_start_index : Tensor
        Integers [L]: where each map starts in S.
    sampling_locations : Tensor
        [B, Q, H, L, P, 2], x and y, 0 to 1 from edge to edge of a map; what lies outside is zero.
    attention_weights : Tensor
        [B, Q, H, L, P]. Locations and weights may be more precise than `value`; arithmetic is in float32 at least.
    deterministic : bool, optional
        Whether the gradient of `value` is to be the same in each run: it is then summed in 64-bit integers, whose unit
        is the largest possible sum over 2**61. Where None, what `torch.use_deterministic_algorithms` says.
    in_cells : bool
        Whether locations are in units of cells, 0 in the middle of a map's first one.

    Returns
    -------
    Tensor
        [B, Q, H * D] of the dtype of `value`. The library's path where `unfit` gives a reason.
    """
    if unfit(value, spatial_shapes, level_start_index, sampling_locations, attention_weights) is not None:
        return msda_plain(value, spatial_shapes, level_start_index, sampling_locations, attention_weights, in_cells)
    if deterministic is None:
        deterministic = torch.are_deterministic_algorithms_enabled()
    out: torch.Tensor = sample(
        value, spatial_shapes, level_start_index, sampling_locations, attention_weights, deterministic, in_cells
    )
    return out


def _sizes(value: torch.Tensor, weights: torch.Tensor, kernel: str) -> dict[str, Any]:
    """Constants of a kernel's launch."""
    _, _, heads, levels, points = weights.shape
    width = value.shape[3]
    return {
        "HEADS": heads, "LEVELS": levels, "POINTS": points, "D": width, "BLOCK_D": power_of_two(width),
        "ACC": accumulator(value.dtype), **launch("msda", kernel, width_class(width), value.device),
    }  # fmt: skip


def _near(value: torch.Tensor) -> torch.Tensor:
    """The maps with the channels of a head side by side."""
    return value if value.stride(3) == 1 else value.contiguous()


@torch.library.custom_op("turbo_hydra::msda", mutates_args=())
def sample(
    value: torch.Tensor, spatial_shapes: torch.Tensor, level_start_index: torch.Tensor,
    sampling_locations: torch.Tensor, attention_weights: torch.Tensor, deterministic: bool, in_cells: bool = False,
) -> torch.Tensor:  # fmt: skip
    """Operator of the forward pass; `deterministic` is for the backward."""
    value = _near(value)
    batch, cells, heads, width = value.shape
    queries = attention_weights.shape[1]
    out = value.new_empty((batch, queries, heads * width))
    sizes = _sizes(value, attention_weights, "forward")
    with on(value.device):
        kernels.forward[(cdiv(queries * heads, sizes["BLOCK"]), batch)](
            value, spatial_shapes.contiguous(), level_start_index.contiguous(), sampling_locations.contiguous(),
            attention_weights.contiguous(), out, queries * heads, cells, *value.stride()[:3], IN_CELLS=in_cells,
            **sizes,
        )  # fmt: skip
    return out


@sample.register_fake
def _(
    value: torch.Tensor, spatial_shapes: torch.Tensor, level_start_index: torch.Tensor,
    sampling_locations: torch.Tensor, attention_weights: torch.Tensor, deterministic: bool, in_cells: bool = False,
) -> torch.Tensor:  # fmt: skip
    return value.new_empty((value.shape[0], attention_weights.shape[1], value.shape[2] * value.shape[3]))


def _unit(grad: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Power of two that turns gradients into integers whose sums, whatever is added where, stay below 2**62.

    At most every point of every query of a head adds to one cell. NaN, as all the gradient then is, where one of them
    is not finite.
    """
    accumulated = accumulates(grad.dtype)
    largest = grad.abs().amax().to(accumulated) * weights.abs().amax().to(accumulated)
    at_most = largest * (weights.shape[1] * weights.shape[4])
    exponent = (61 - at_most.log2().ceil()).clamp(-100, 100)
    return torch.where((at_most > 0) & at_most.isfinite(), exponent.exp2(), at_most * 0 + 1)


@torch.library.custom_op("turbo_hydra::msda_backward", mutates_args=())
def sample_backward(
    grad: torch.Tensor, value: torch.Tensor, spatial_shapes: torch.Tensor, level_start_index: torch.Tensor,
    sampling_locations: torch.Tensor, attention_weights: torch.Tensor, deterministic: bool, in_cells: bool = False,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    """Operator of the backward pass: gradients of value, locations and weights, contiguous."""
    grad, locations, weights = grad.contiguous(), sampling_locations.contiguous(), attention_weights.contiguous()
    value = _near(value)
    batch, cells, heads, _ = value.shape
    accumulated = accumulates(value.dtype)
    unit = _unit(grad, weights) if deterministic else grad.new_ones((), dtype=accumulated)
    sums = torch.zeros(value.shape, dtype=torch.int64 if deterministic else accumulated, device=value.device)
    grad_locations, grad_weights = torch.empty_like(locations), torch.empty_like(weights)
    sizes = _sizes(value, weights, "backward")
    pairs = weights.shape[1] * heads
    with on(value.device):
        kernels.backward[(cdiv(pairs, sizes["BLOCK"]), batch)](
            grad, value, spatial_shapes.contiguous(), level_start_index.contiguous(), locations, weights, unit, sums,
            grad_locations, grad_weights, pairs, cells, *value.stride()[:3], IN_CELLS=in_cells, INTEGERS=deterministic,
            **sizes,
        )  # fmt: skip
    if deterministic:
        sums = (sums.double() / unit).to(value.dtype)
    return sums.to(value.dtype), grad_locations, grad_weights


@sample_backward.register_fake
def _(
    grad: torch.Tensor, value: torch.Tensor, spatial_shapes: torch.Tensor, level_start_index: torch.Tensor,
    sampling_locations: torch.Tensor, attention_weights: torch.Tensor, deterministic: bool, in_cells: bool = False,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    return (
        value.new_empty(value.shape),
        sampling_locations.new_empty(sampling_locations.shape),
        attention_weights.new_empty(attention_weights.shape),
    )


def _save(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    *tensors, ctx.deterministic, ctx.in_cells = inputs
    ctx.save_for_backward(*tensors)


def _differentiate(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    for_value, for_locations, for_weights = sample_backward(grad, *ctx.saved_tensors, ctx.deterministic, ctx.in_cells)
    return for_value, None, None, for_locations, for_weights, None, None


sample.register_autograd(_differentiate, setup_context=_save)
