# SPDX-License-Identifier: Apache-2.0
"""Reference points of the BEV grid: made once for each size, handed out as copies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from turbo_hydra.catalogs.models.bevformer.constants import Constants

Function = Callable[..., Any]


def get_reference_points(original: Function, options: None) -> Function:
    """Factory for `BEVFormerEncoder.get_reference_points`, a static method.

    Each caller gets a copy, so that one that shifts its points in place shifts nobody else's.
    """
    constants = Constants()

    def get_reference_points(
        H: int,
        W: int,
        Z: float = 8,
        num_points_in_pillar: int = 4,
        dim: str = "3d",
        bs: int = 1,
        device: Any = "cuda",
        dtype: torch.dtype = torch.float,
    ) -> Any:
        arguments = (H, W, Z, num_points_in_pillar, dim, bs, device, dtype)
        if dim not in ("2d", "3d") or torch.compiler.is_compiling():
            return original(*arguments)
        made: Tensor = constants.get((*arguments[:-2], str(device), dtype), lambda: original(*arguments))
        return made.clone()

    return get_reference_points
