# SPDX-License-Identifier: Apache-2.0
"""Gemma's RMS norm, plain or modulated by a condition, in one pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from turbo_hydra import fallback
from turbo_hydra.kernels.ada_rms_norm import ada_rms_norm, unfit

Norm = tuple[Tensor, "Tensor | None"]


def forward(original: Callable[..., Norm], options: None) -> Callable[..., Norm]:
    """Factory for `GemmaRMSNorm.forward`, which gives the normed input and the gate."""

    def forward(self: Any, x: Tensor, cond: Tensor | None = None) -> Norm:
        if cond is None or self.dense is None:
            reason = "neither weight nor condition" if self.dense is not None else unfit(x, self.weight)
            if reason is not None:
                fallback(reason)
                return original(self, x, cond)
            return ada_rms_norm(x, self.weight, None, self.eps)[0], None
        reason = unfit(x, x[..., 0, :] if x.dim() == 3 else x)
        if reason is not None or cond.shape[-1] != self.cond_dim or x.dim() != 3 or cond.dim() != 2:
            fallback(reason or "a condition of another shape")
            return original(self, x, cond)
        scale, shift, gate = self.dense(cond).unsqueeze(1).chunk(3, dim=-1)
        return ada_rms_norm(x, scale, shift, self.eps)[0], gate.to(x.dtype)

    return forward
