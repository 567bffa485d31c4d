# SPDX-License-Identifier: Apache-2.0
"""Projection of the BEV pillars into the cameras, one matrix a camera instead of one a point.

Upstream repeats each camera's 4 by 4 matrix for each point and multiplies them one by one. Here the rows of a matrix
are scaled and added over all points at once, in upstream's order of additions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from turbo_hydra import fallback, redecorated
from turbo_hydra.catalogs.models.bevformer.constants import uploaded

Function = Callable[..., Any]
# The least depth in front of a camera.
_NEAR = 1e-5


def point_sampling(original: Function, options: None) -> Function:
    """Factory for `BEVFormerEncoder.point_sampling`."""

    def make(inner: Function) -> Function:
        def point_sampling(
            self: Any, reference_points: Tensor, pc_range: Sequence[float], img_metas: Sequence[Any]
        ) -> tuple[Tensor, Tensor]:
            if reference_points.dim() != 4 or reference_points.dtype not in (torch.float32, torch.float64):
                fallback("neither float32 nor float64 points in pillars")
                result: tuple[Tensor, Tensor] = inner(self, reference_points, pc_range, img_metas)
                return result
            # What upstream's switching off and on of TF32 leaves behind: convolutions are as matrix products are.
            torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32
            matrices = torch.from_numpy(np.asarray([meta["lidar2img"] for meta in img_metas]))
            matrices = uploaded(matrices.to(reference_points.dtype), reference_points.device).float()
            batch, depth, queries, _ = reference_points.shape
            x, y, z = (
                (reference_points[..., axis] * (pc_range[axis + 3] - pc_range[axis]) + pc_range[axis])
                .reshape(batch, 1, 1, depth * queries)
                .float()
                for axis in range(3)
            )
            # [B, N, 3, 1] each: a camera's x, y and depth by the point's x, y, z and 1.
            by_x, by_y, by_z, by_one = matrices[:, :, :3].split(1, -1)
            seen = by_x * x
            seen += by_y * y
            seen += by_z * z
            seen += by_one
            seen = seen.view(batch, -1, 3, depth, queries)
            far = seen[:, :, 2]
            down, across = img_metas[0]["img_shape"][0][:2]
            places = seen[:, :, :2] / far.clamp(min=_NEAR).unsqueeze(2)
            places[:, :, 0] /= across
            places[:, :, 1] /= down
            mask = (far > _NEAR) & ((places > 0.0) & (places < 1.0)).all(2)
            # Cameras, samples, queries, heights; and x and y.
            return places.permute(1, 0, 4, 3, 2), mask.permute(1, 0, 3, 2)

        return point_sampling

    return redecorated(original, make)
