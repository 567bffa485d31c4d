# SPDX-License-Identifier: Apache-2.0
"""What BEVFormer's deformable attentions have in common: the maps, the projections and the function that attends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from turbo_hydra.catalogs.remembering import LastResult


class Maps(NamedTuple):
    """Feature maps: how many cells they have together, and their [L, 2] widths and heights."""

    cells: int | None
    sizes: Tensor


class MapsOf:
    """Looks at a tensor of shapes once, not in each layer: on a device each look waits for all that is queued."""

    def __init__(self) -> None:
        self._last: LastResult[Maps] = LastResult()

    def __call__(self, spatial_shapes: Tensor) -> Maps:
        """The maps of `spatial_shapes` [L, 2], heights and widths; a compiler does not count the cells."""
        if torch.compiler.is_compiling():
            return Maps(None, spatial_shapes.flip(-1))
        return self._last.get(lambda: _look(spatial_shapes), (spatial_shapes,))


def _look(spatial_shapes: Tensor) -> Maps:
    return Maps(int(spatial_shapes.prod(1).sum()), spatial_shapes.flip(-1))


class Projected(NamedTuple):
    """What an attention makes of its query and its maps; H heads of width D, L maps, P points.

    Attributes
    ----------
    value : Tensor
        [B, cells, H, D].
    moved : Tensor
        [B, Q, H, L, P, 2]: where the points lie from their reference point, in widths and heights of the map.
    weights : Tensor
        [B, Q, H, L, P], of sum 1 over L and P.
    """

    value: Tensor
    moved: Tensor
    weights: Tensor


def unfit(module: Any, features: Tensor, reference_points: Tensor, maps: Maps) -> str | None:
    """Why an attention of one map a sample is left to upstream, None where it is not."""
    if reference_points.shape[-1] != 2:
        return "reference points that are not x and y"
    if not reference_points.numel():
        return "no queries"
    if maps.cells is not None and maps.cells != features.shape[1 if module.batch_first else 0]:
        return "shapes that are not those of value"
    return None


def project(module: Any, query: Tensor, features: Tensor, key_padding_mask: Tensor | None, maps: Maps) -> Projected:
    """Apply the projections of `module` to `query` and `features`, which lie as its `batch_first` says."""
    if not module.batch_first:
        query, features = query.permute(1, 0, 2), features.permute(1, 0, 2)
    batch, queries, _ = query.shape
    heads, levels, points = module.num_heads, module.num_levels, module.num_points
    value = module.value_proj(features)
    if key_padding_mask is not None:
        value = value.masked_fill(key_padding_mask[..., None], 0.0)
    value = value.view(batch, features.shape[1], heads, -1)
    offsets = module.sampling_offsets(query).view(batch, queries, heads, levels, points, 2)
    weights = module.attention_weights(query).view(batch, queries, heads, levels * points)
    weights = weights.softmax(-1).view(batch, queries, heads, levels, points)
    return Projected(value, offsets / maps.sizes[:, None, :], weights)


def attention_of(definition: Callable[..., Any]) -> Callable[..., Tensor]:
    """The function that attends, by the names that `definition`'s module has for it, as they are at the call."""
    names = definition.__globals__

    def attend(
        value: Tensor, shapes: Tensor, starts: Tensor, locations: Tensor, weights: Tensor, im2col_step: int
    ) -> Tensor:
        if value.is_cuda:
            function = names["MultiScaleDeformableAttnFunction_fp32"]
            by_operator: Tensor = function.apply(value, shapes, starts, locations, weights, im2col_step)
            return by_operator
        output: Tensor = names["multi_scale_deformable_attn_pytorch"](value, shapes, locations, weights)
        return output

    return attend
