# SPDX-License-Identifier: Apache-2.0
"""The small model for `benchmarks.bevformer`, in a process whose path leads to the small packages."""

from __future__ import annotations

from typing import Any

import torch

from tests.bevformer.small import CLASSES, batch, model


def parts(repo: str, size: str, device: str, whole: bool) -> dict[str, Any]:
    """What `benchmarks.bevformer_parts.upstream` gives."""
    net, data = model(dcn=False), batch()
    return {
        "head": net.pts_bbox_head,
        "features": [torch.randn(1, 3, 16, 12, 16), torch.randn(1, 3, 16, 6, 8)],
        "metas": [data["img_metas"][0][1]],
        "boxes": data["gt_bboxes_3d"][0],
        "labels": torch.randint(0, CLASSES, (3,)),
        **({"detector": net, "batch": data} if whole else {}),
    }
