# SPDX-License-Identifier: Apache-2.0
"""From camera features to the encoder: what the host knows is sent in one piece, sizes are sent once for all steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from turbo_hydra import redecorated
from turbo_hydra.catalogs.models.bevformer.constants import Constants, uploaded

Function = Callable[..., Any]


def get_bev_features(original: Function, options: None) -> Function:
    """Factory for `PerceptionTransformer.get_bev_features`."""
    constants = Constants()

    def make(inner: Function) -> Function:
        names = inner.__globals__

        def get_bev_features(
            self: Any,
            mlvl_feats: Sequence[Tensor],
            bev_queries: Tensor,
            bev_h: int,
            bev_w: int,
            grid_length: Sequence[float] = (0.512, 0.512),
            bev_pos: Any = None,
            prev_bev: Tensor | None = None,
            **kwargs: Any,
        ) -> Any:
            batch, device = mlvl_feats[0].size(0), bev_queries.device
            signals = np.asarray([meta["can_bus"] for meta in kwargs["img_metas"]])
            moves = np.stack(_shift(signals, grid_length, bev_h, bev_w), -1) * self.use_shift
            sent = uploaded(torch.from_numpy(np.concatenate((moves, signals), -1)).to(bev_queries.dtype), device)
            if prev_bev is not None:
                prev_bev = _turned(self, prev_bev, kwargs["img_metas"], bev_h, bev_w, names["rotate"])
            can_bus = self.can_bus_mlp(sent[:, 2:])[None]
            queries = bev_queries.unsqueeze(1).repeat(1, batch, 1) + can_bus * self.use_can_bus
            flat = []
            for level, features in enumerate(mlvl_feats):
                features = features.flatten(3).permute(1, 0, 3, 2)
                if self.use_cams_embeds:
                    features = features + self.cams_embeds[:, None, None].to(features.dtype)
                flat.append(features + self.level_embeds[None, None, level : level + 1].to(features.dtype))
            shapes = tuple(tuple(features.shape[-2:]) for features in mlvl_feats)
            spatial_shapes = constants.get(("shapes", shapes, device), lambda: torch.tensor(shapes, device=device))
            starts = [sum(high * wide for high, wide in shapes[:level]) for level in range(len(shapes))]
            level_start_index = constants.get(
                ("starts", shapes, device), lambda: torch.tensor(starts, dtype=torch.long, device=device)
            )
            # Of cameras, cells, samples, channels.
            together = torch.cat(flat, 2).permute(0, 2, 1, 3)
            return self.encoder(
                queries,
                together,
                together,
                bev_h=bev_h,
                bev_w=bev_w,
                bev_pos=bev_pos.flatten(2).permute(2, 0, 1),
                spatial_shapes=spatial_shapes,
                level_start_index=level_start_index,
                prev_bev=prev_bev,
                shift=sent[:, :2],
                **kwargs,
            )

        return get_bev_features

    return redecorated(original, make)


def _shift(signals: Any, grid_length: Sequence[float], bev_h: int, bev_w: int) -> tuple[Any, Any]:
    """How far the car has moved across and along the grid, in parts of the grid."""
    along, across = signals[:, 0], signals[:, 1]
    angle = signals[:, -2] / np.pi * 180 - np.arctan2(across, along) / np.pi * 180
    length = np.sqrt(along**2 + across**2)
    down = length * np.cos(angle / 180 * np.pi) / grid_length[0] / bev_h
    right = length * np.sin(angle / 180 * np.pi) / grid_length[1] / bev_w
    return right, down


def _turned(self: Any, prev_bev: Tensor, img_metas: Any, bev_h: int, bev_w: int, rotate: Function) -> Tensor:
    """The last BEV map, turned as the car has turned, in place as upstream does it; [cells, B, width]."""
    if prev_bev.shape[1] == bev_h * bev_w:
        prev_bev = prev_bev.permute(1, 0, 2)
    if self.rotate_prev_bev:
        for sample, meta in enumerate(img_metas):
            image = prev_bev[:, sample].reshape(bev_h, bev_w, -1).permute(2, 0, 1)
            image = rotate(image, meta["can_bus"][-1], center=self.rotate_center)
            prev_bev[:, sample] = image.permute(1, 2, 0).reshape(bev_h * bev_w, -1)
    return prev_bev
