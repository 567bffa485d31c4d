# SPDX-License-Identifier: Apache-2.0
"""Convolutions keep the precision that they had before the first projection of the pillars."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Function = Callable[..., Any]


def point_sampling(original: Function, options: None) -> Function:
    """Factory for `BEVFormerEncoder.point_sampling`.

    Upstream switches TF32 off for its projection, and then gives convolutions the setting of matrix products, which is
    off: from the second iteration on the backbone convolves in full float32.
    """

    def point_sampling(self: Any, reference_points: Any, pc_range: Any, img_metas: Any) -> Any:
        before = torch.backends.cudnn.allow_tf32
        try:
            return original(self, reference_points, pc_range, img_metas)
        finally:
            torch.backends.cudnn.allow_tf32 = before

    return point_sampling
