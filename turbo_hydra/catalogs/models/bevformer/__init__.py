# SPDX-License-Identifier: Apache-2.0
"""Groups for BEVFormer as it trains with mmcv 1.x, mmdet and mmdet3d."""

from __future__ import annotations

from turbo_hydra.catalogs.models.bevformer import (  # isort: skip
    compat,  # noqa: F401  its groups come first
    groups,  # noqa: F401
)
