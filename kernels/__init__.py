# SPDX-License-Identifier: Apache-2.0
"""Triton kernels that replacements call, each under one name: module, operator, test, benchmark row.

`turbo_hydra.kernels.STEM` holds a public function that takes and returns plain tensors, the plain PyTorch path that it
falls back to (which in float64 is the reference), and `unfit`, which says why a call would take that path. Nothing here
imports torch or triton before a stem is imported; where triton is missing, stems import and take the plain path.
"""

from __future__ import annotations

from .usable import STEMS, unusable, without_device

__all__ = ["STEMS", "unusable", "without_device"]
