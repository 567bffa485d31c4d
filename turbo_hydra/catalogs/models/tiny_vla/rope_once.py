# SPDX-License-Identifier: Apache-2.0
"""Cosines and sines once for all layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from turbo_hydra.catalogs.remembering import LastResult

Forward = Callable[[Any, Tensor, Tensor], tuple[Tensor, Tensor]]


def forward(original: Forward, options: None) -> Forward:
    """Factory for `tiny_vla.rotary.RotaryEmbedding.forward`."""
    last: LastResult[tuple[Tensor, Tensor]] = LastResult()

    def forward(self: Any, x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        if torch.compiler.is_compiling():
            return original(self, x, position_ids)  # a compiler sees by itself what is common, and fuses the rest
        return last.get(lambda: original(self, x, position_ids), (position_ids, self.inverse_frequency), x.dtype)

    return forward
