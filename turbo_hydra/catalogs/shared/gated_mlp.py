# SPDX-License-Identifier: Apache-2.0
"""The gate of an MLP in one pass: GeGLU or SwiGLU, by the activation that the module holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from turbo_hydra import fallback
from turbo_hydra.catalogs.shared.activations import known
from turbo_hydra.catalogs.shared.options import GatedMlp
from turbo_hydra.catalogs.shared.plain import not_plain
from turbo_hydra.kernels import language
from turbo_hydra.kernels.geglu import geglu, unfit
from turbo_hydra.kernels.swiglu import swiglu

Forward = Callable[[Any, Tensor], Tensor]
_KERNELS = {"gelu_tanh": geglu, "silu": swiglu}


def forward(original: Forward, options: GatedMlp | None) -> Forward:
    """Factory for an MLP that is down(activation(gate(x)) * up(x)), of which the kernel is the middle."""
    exact = options is not None and options.exact

    def forward(self: Any, x: Tensor) -> Tensor:
        kernel = _KERNELS.get(known(self.act_fn) or "")
        reason = "another activation" if kernel is None else language.unfit(x)
        if kernel is None or reason is not None:
            fallback(reason or "")
            return original(self, x)
        gate, up = self.gate_proj(x), self.up_proj(x)
        reason = not_plain(gate, up) or unfit(gate, up)
        if reason is not None:
            fallback(reason)
            result: Tensor = self.down_proj(self.act_fn(gate) * up)
            return result
        result = self.down_proj(kernel(gate, up, exact and gate.dtype == torch.bfloat16))
        return result

    return forward
