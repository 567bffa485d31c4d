# SPDX-License-Identifier: Apache-2.0
"""The gate of Gemma's MLP in one pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from turbo_hydra import fallback
from turbo_hydra.catalogs.models.openpi.activations import is_gelu_tanh
from turbo_hydra.kernels.geglu import geglu, unfit

Forward = Callable[[Any, Tensor], Tensor]


def forward(original: Forward, options: None) -> Forward:
    """Factory for `GemmaMLP.forward`: down(gelu(gate(x)) * up(x)), of which the kernel is the middle."""

    def forward(self: Any, x: Tensor) -> Tensor:
        if not is_gelu_tanh(self.act_fn):
            fallback("another activation")
            return original(self, x)
        gate, up = self.gate_proj(x), self.up_proj(x)
        reason = unfit(gate, up)
        if reason is not None:
            fallback(reason)
            result: Tensor = self.down_proj(self.act_fn(gate) * up)
            return result
        result = self.down_proj(geglu(gate, up))
        return result

    return forward
