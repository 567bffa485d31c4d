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
