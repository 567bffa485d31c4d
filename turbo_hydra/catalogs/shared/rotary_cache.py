# SPDX-License-Identifier: Apache-2.0
"""Cosines and sines once for a tensor of positions instead of once a layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from turbo_hydra import fallback
from turbo_hydra.catalogs.remembering import LastResult

Forward = Callable[[Any, Tensor, Tensor], tuple[Tensor, Tensor]]


def forward(original: Forward, options: None) -> Forward:
    """Factory for a rotary embedding that is `forward(x, position_ids)`, as transformers has them."""
    last: LastResult[tuple[Tensor, Tensor]] = LastResult()

    def forward(self: Any, x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        if torch.compiler.is_compiling():
            return original(self, x, position_ids)  # a compiler sees by itself what is common, and fuses the rest
        if getattr(self, "rope_type", "default") != "default":
            fallback("a rotary embedding that changes with the length")
            return original(self, x, position_ids)
        also = (x.dtype, x.device, self.attention_scaling)
        return last.get(lambda: original(self, x, position_ids), (position_ids, self.inv_freq), also)

    return forward
