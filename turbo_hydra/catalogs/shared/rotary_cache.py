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
            # A compiler sees what is common to the layers, and yet computes it again in each kernel that reads it.
            cos, sin = original(self, x, position_ids)
            return _written(cos), _written(sin)
        if getattr(self, "rope_type", "default") != "default":
            fallback("a rotary embedding that changes with the length")
            return original(self, x, position_ids)
        also = (x.dtype, x.device, self.attention_scaling)
        return last.get(lambda: original(self, x, position_ids), (position_ids, self.inv_freq), also)

    return forward


@torch.library.custom_op("turbo_hydra::written", mutates_args=())
def _written(x: Tensor) -> Tensor:
    """Operator: `x` in memory of its own, which no compiler fuses into what reads it."""
    return x.clone()


@_written.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)
