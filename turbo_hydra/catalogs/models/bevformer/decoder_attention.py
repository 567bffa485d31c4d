# SPDX-License-Identifier: Apache-2.0
"""The decoder's attention to the BEV map, without a look at its shape in each layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from turbo_hydra import fallback, redecorated
from turbo_hydra.catalogs.models.bevformer.attend import MapsOf, attention_of

Function = Callable[..., Any]


def forward(original: Function, options: None) -> Function:
    """Factory for `CustomMSDeformableAttention.forward`."""
    maps_of = MapsOf()

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
            features = query if value is None else value
            maps = maps_of(spatial_shapes)
            reason = None
            if reference_points.shape[-1] != 2:
                reason = "reference points that are not x and y"
            elif maps.cells is not None and maps.cells != features.shape[1 if self.batch_first else 0]:
                reason = "shapes that are not those of value"
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
            identity = query if identity is None else identity
            if query_pos is not None:
                query = query + query_pos
            if not self.batch_first:
                query, features = query.permute(1, 0, 2), features.permute(1, 0, 2)
            batch, queries, _ = query.shape
            heads, levels, points = self.num_heads, self.num_levels, self.num_points
            projected = self.value_proj(features)
            if key_padding_mask is not None:
                projected = projected.masked_fill(key_padding_mask[..., None], 0.0)
            projected = projected.view(batch, features.shape[1], heads, -1)
            offsets = self.sampling_offsets(query).view(batch, queries, heads, levels, points, 2)
            weights = self.attention_weights(query).view(batch, queries, heads, levels * points)
            weights = weights.softmax(-1).view(batch, queries, heads, levels, points)
            locations = reference_points[:, :, None, :, None] + offsets / maps.sizes[:, None, :]
            output = attend(projected, spatial_shapes, level_start_index, locations, weights, self.im2col_step)
            output = self.output_proj(output)
            if not self.batch_first:
                output = output.permute(1, 0, 2)
            moved: Tensor = self.dropout(output) + identity
            return moved

        return forward

    return redecorated(original, make)
