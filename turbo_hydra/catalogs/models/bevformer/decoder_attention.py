# SPDX-License-Identifier: Apache-2.0
"""The decoder's attention to the BEV map, without a look at its shape in each layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from turbo_hydra import fallback, redecorated
from turbo_hydra.catalogs.models.bevformer.attend import MapsOf, attention_of, project, unfit

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
            reason = unfit(self, features, reference_points, maps)
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
            value, moved, weights = project(self, query, features, key_padding_mask, maps)
            locations = reference_points[:, :, None, :, None] + moved
            output = attend(value, spatial_shapes, level_start_index, locations, weights, self.im2col_step)
            output = self.output_proj(output)
            if not self.batch_first:
                output = output.permute(1, 0, 2)
            result = self.dropout(output) + identity
            return result

        return forward

    return redecorated(original, make)
