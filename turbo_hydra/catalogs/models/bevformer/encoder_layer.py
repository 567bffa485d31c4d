# SPDX-License-Identifier: Apache-2.0
"""An encoder layer whose sizes are on the device already, instead of being sent there twice a layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from turbo_hydra import fallback
from turbo_hydra.catalogs.models.bevformer.constants import Constants

Function = Callable[..., Any]


def forward(original: Function, options: None) -> Function:
    """Factory for `BEVFormerLayer.forward`."""
    constants = Constants()

    def sizes(rows: tuple[Any, ...], device: torch.device) -> Tensor:
        return constants.get((rows, device), lambda: torch.tensor(rows, device=device))

    def forward(
        self: Any,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        bev_pos: Tensor | None = None,
        query_pos: Tensor | None = None,
        key_pos: Tensor | None = None,
        attn_masks: Any = None,
        query_key_padding_mask: Tensor | None = None,
        key_padding_mask: Tensor | None = None,
        ref_2d: Tensor | None = None,
        ref_3d: Tensor | None = None,
        bev_h: Any = None,
        bev_w: Any = None,
        reference_points_cam: Tensor | None = None,
        mask: Tensor | None = None,
        spatial_shapes: Tensor | None = None,
        level_start_index: Tensor | None = None,
        prev_bev: Tensor | None = None,
        **kwargs: Any,
    ) -> Tensor:
        if attn_masks is not None:
            fallback("attention masks")
            result: Tensor = original(
                self,
                query,
                key,
                value,
                bev_pos,
                query_pos,
                key_pos,
                attn_masks,
                query_key_padding_mask,
                key_padding_mask,
                ref_2d,
                ref_3d,
                bev_h,
                bev_w,
                reference_points_cam,
                mask,
                spatial_shapes,
                level_start_index,
                prev_bev,
                **kwargs,
            )
            return result
        attentions, norms, ffns = iter(self.attentions), iter(self.norms), iter(self.ffns)
        identity = query
        for part in self.operation_order:
            before = identity if self.pre_norm else None
            if part == "norm":
                query = next(norms)(query)
                continue
            if part == "ffn":
                query = next(ffns)(query, before)
                continue
            if part == "self_attn":
                query = next(attentions)(
                    query,
                    prev_bev,
                    prev_bev,
                    before,
                    query_pos=bev_pos,
                    key_pos=bev_pos,
                    attn_mask=None,
                    key_padding_mask=query_key_padding_mask,
                    reference_points=ref_2d,
                    spatial_shapes=sizes(((bev_h, bev_w),), query.device),
                    level_start_index=sizes((0,), query.device),
                    **kwargs,
                )
            else:
                query = next(attentions)(
                    query,
                    key,
                    value,
                    before,
                    query_pos=query_pos,
                    key_pos=key_pos,
                    reference_points=ref_3d,
                    reference_points_cam=reference_points_cam,
                    mask=mask,
                    attn_mask=None,
                    key_padding_mask=key_padding_mask,
                    spatial_shapes=spatial_shapes,
                    level_start_index=level_start_index,
                    **kwargs,
                )
            identity = query
        return query

    return forward
