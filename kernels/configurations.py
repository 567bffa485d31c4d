# SPDX-License-Identifier: Apache-2.0
"""How kernels are launched: block sizes and warps by kernel, shape class and kind of device.

The figures stand in `configurations/STEM.json`, which `benchmarks/tune.py` writes after measuring. They are read once
a process and never searched for in a rank, so all ranks launch alike. The class `default` serves the shape classes that
nobody tuned, and a kind of device without a table is served by what was measured on another, with warps turned into
waves: derived, not measured.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import torch

from .device import DeviceKind, device_kind

FOLDER = Path(__file__).with_name("configurations")
# The kind of device that others are derived from.
BASE = "sm_90"
_Launch = dict[str, int]


@cache
def table(stem: str) -> dict[str, Any]:
    """A stem's file: `{"sm_90": {"device": ..., "kernels": {KERNEL: {CLASS: {NAME: NUMBER}}}}}`."""
    found: dict[str, Any] = json.loads((FOLDER / f"{stem}.json").read_text(encoding="utf-8"))
    return found


def launch(stem: str, kernel: str, shape_class: str, device: torch.device) -> _Launch:
    """Keyword arguments of a kernel's launch: block sizes, `num_warps`, `num_stages`.

    Parameters
    ----------
    stem : str
        Whose file it stands in.
    kernel : str
        Which of the stem's kernels, such as `forward`.
    shape_class : str
        What the stem distinguishes, such as `width_4096`; see `width_class`.
    device : torch.device
        Where the tensors are.
    """
    return dict(_launch(stem, kernel, shape_class, device_kind(device)))


@cache
def _launch(stem: str, kernel: str, shape_class: str, kind: DeviceKind) -> _Launch:
    kinds = table(stem)
    # Where one vendor's devices need other tiles, and not only other warps, a file has an entry for the vendor.
    own = kinds.get(kind.name) or kinds.get(kind.vendor)
    classes = (own or kinds[BASE])["kernels"][kernel]
    found: _Launch = classes.get(shape_class, classes["default"])
    return found if own else derive(found, kind)


def derive(found: _Launch, kind: DeviceKind) -> _Launch:
    """A measured launch for another kind: the same threads in its waves, at most two stages where memory is small."""
    result = dict(found)
    if "num_warps" in found:
        result["num_warps"] = kind.warps(found["num_warps"] * 32)
    for stages in {"num_stages", "STAGES"} & set(found):
        if kind.shared_memory < (100 << 10):
            result[stages] = min(found[stages], 2)
    return result


def width_class(width: int) -> str:
    """Shape class of kernels that hold a row: the power of two that it fits into, `width_2048` for 1,025 to 2,048."""
    return f"width_{1 << (max(width, 1) - 1).bit_length()}"
