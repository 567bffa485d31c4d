# SPDX-License-Identifier: Apache-2.0
"""What BEVFormer's three deformable attentions have in common."""

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
