# SPDX-License-Identifier: Apache-2.0
"""Temporal self attention whose two maps, of then and of now, are two levels of one attention.

Upstream attends to each map in a batch of its own and takes the mean of the two results, for which offsets and weights
are copied into the batch's order, and results out of it. A sum over levels is what the attention makes anyway.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from turbo_hydra import fallback, redecorated
from turbo_hydra.catalogs.models.bevformer.attend import Maps, MapsOf, attention_of
from turbo_hydra.catalogs.remembering import LastResult

Function = Callable[..., Any]


def forward(original: Function, options: None) -> Function:
    """Factory for `TemporalSelfAttention.forward`."""
    maps_of = MapsOf()
    doubled: LastResult[tuple[Tensor, Tensor]] = LastResult()

    def twice(shapes: Tensor, starts: Tensor, cells: int) -> tuple[Tensor, Tensor]:
        """Shapes and starts of both maps, one after the other."""
        if torch.compiler.is_compiling():
            return torch.cat((shapes, shapes)), torch.cat((starts, starts + cells))
        return doubled.get(
            lambda: (torch.cat((shapes, shapes)), torch.cat((starts, starts + cells))), (shapes, starts), cells
        )

    def make(inner: Function) -> Function:
        attend = attention_of(inner)

        def forward(
            self: Any,
            query: Tensor,
            key: Tensor | None = None,
            value: Tensor | None = None,
            identity: Tensor | None = None,
            query_pos: Tensor | None = None,
            key_padding_mask: Tensor | None = None,
            reference_points: Any = None,
            spatial_shapes: Any = None,
            level_start_index: Any = None,
            flag: str = "decoder",
            **kwargs: Any,
        ) -> Tensor:
            maps = maps_of(spatial_shapes)
            reason = _unfit(self, query, value, key_padding_mask, reference_points, level_start_index, maps)
            if reason is not None:
                fallback(reason)
                result: Tensor = inner(
                    self,
                    query,
                    key,
                    value,
                    identity,
                    query_pos,
                    key_padding_mask,
                    reference_points,
                    spatial_shapes,
                    level_start_index,
                    flag,
                    **kwargs,
                )
                return result
            batch, queries, width = query.shape
            if value is None:
                # Now alone: both maps are the query's. Beside the query goes, as upstream has it, the first half of the
                # batch of maps, which is the query itself where there is one sample.
                projected = self.value_proj(query)
                projected = torch.stack((projected, projected), 1)
                before = query if batch == 1 else query.repeat_interleave(2, 0)[:batch]
            else:
                projected, before = self.value_proj(value), value[:batch]
            identity = query if identity is None else identity
            if query_pos is not None:
                query = query + query_pos
            query = torch.cat((before, query), -1)
            cells = projected.numel() // (2 * batch * width)
            heads, levels, points = self.num_heads, self.num_levels, self.num_points
            projected = projected.reshape(batch, 2 * cells, heads, -1)
            offsets = self.sampling_offsets(query).view(batch, queries, heads, 2, levels, points, 2)
            weights = self.attention_weights(query).view(batch, queries, heads, 2, levels * points)
            weights = weights.softmax(-1).view(batch, queries, heads, 2 * levels, points)
            references = reference_points.view(batch, 2, queries, -1, 2).transpose(1, 2)
            locations = references[:, :, None, :, :, None] + offsets / maps.sizes[:, None, :]
            locations = locations.view(batch, queries, heads, 2 * levels, points, 2)
            shapes, starts = twice(spatial_shapes, level_start_index, cells)
            output = attend(projected, shapes, starts, locations, weights, self.im2col_step)
            output = self.output_proj(output / 2)
            moved: Tensor = self.dropout(output) + identity
            return moved

        return forward

    return redecorated(original, make)


def _unfit(
    self: Any, query: Tensor, value: Any, key_padding_mask: Any, points: Any, starts: Any, maps: Maps
) -> str | None:
    if not self.batch_first or self.num_bev_queue != 2 or key_padding_mask is not None or starts is None:
        return "called in another way"
    if value is not None and value.shape[0] != 2 * query.shape[0]:
        return "not two maps a sample"
    if points.shape[-1] != 2 or points.shape[0] != 2 * query.shape[0] or not points.is_contiguous():
        return "reference points that are not x and y of two maps a sample"
    cells = query.shape[1] if value is None else value.shape[1]
    if maps.cells is not None and maps.cells != cells:
        return "shapes that are not those of value"
    return None
