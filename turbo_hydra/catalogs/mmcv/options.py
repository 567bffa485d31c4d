# SPDX-License-Identifier: Apache-2.0
"""Options of the groups."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class DeformConv:
    """Options of `mmcv.dcn`."""

    use: Literal["absent", "always"] = field(
        default="absent",
        metadata={"help": "absent: only where mmcv's extension is not there; always: in its place too"},
    )


@dataclass(frozen=True)
class Attention:
    """Options of `mmcv.attention`."""

    fused_dropout: bool = field(
        default=False,
        metadata={"help": "on a device, let the fused attention kernels draw their own dropout: another training"},
    )
