# SPDX-License-Identifier: Apache-2.0
"""The gate of Gemma's MLP: in one pass where kernels run, as one node of the graph elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from turbo_hydra import fallback
from turbo_hydra.catalogs.shared import gated_mlp
from turbo_hydra.catalogs.shared.activations import is_gelu_tanh
from turbo_hydra.catalogs.shared.lean import LeanGeglu
from turbo_hydra.kernels import language

Forward = Callable[[Any, Tensor], Tensor]


def forward(original: Forward, options: None) -> Forward:
    """Factory for `GemmaMLP.forward`: down(gelu(gate(x)) * up(x))."""
    by_kernel = gated_mlp.forward(original, None)

    def forward(self: Any, x: Tensor) -> Tensor:
        if language.unfit(x) is None:
            return by_kernel(self, x)
        if torch.compiler.is_compiling() or not is_gelu_tanh(self.act_fn):
            fallback("compiling" if torch.compiler.is_compiling() else "another activation")
            return original(self, x)
        gated: Tensor = LeanGeglu.apply(self.gate_proj(x), self.up_proj(x))  # type: ignore[no-untyped-call]
        result: Tensor = self.down_proj(gated)
        return result

    return forward
