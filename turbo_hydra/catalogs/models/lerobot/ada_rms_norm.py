# SPDX-License-Identifier: Apache-2.0
"""lerobot's RMS norm, plain or modulated by a condition: in one pass where kernels run, as one node elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from turbo_hydra import fallback
from turbo_hydra.catalogs.shared.lean import LeanNorm
from turbo_hydra.kernels.ada_rms_norm import ada_rms_norm, unfit

Norm = tuple[Tensor, "Tensor | None"]


def forward(original: Callable[..., Norm], options: None) -> Callable[..., Norm]:
    """Factory for `PiGemmaRMSNorm.forward`, which gives the normed input and the gate."""

    def forward(self: Any, x: Tensor, cond: Tensor | None = None) -> Norm:
        reason = _unfit(self, x, cond)
        if reason is not None:
            fallback(reason)
            return original(self, x, cond)
        if cond is None or self.dense is None:
            return normed(x, self.weight, None, self.eps), None
        scale, shift, gate = self.dense(cond).unsqueeze(1).chunk(3, dim=-1)
        return normed(x, scale, shift, self.eps), gate.to(x.dtype)

    return forward


def normed(x: Tensor, scale: Tensor, shift: Tensor | None, eps: float) -> Tensor:
    """Norm, scale and shift: x * rsqrt(mean(x^2) + eps) * (1 + scale) + shift, of x's shape and dtype.

    Parameters
    ----------
    x : Tensor
        [..., width]; [batch, length, width] where there is a shift.
    scale, shift : Tensor
        [width], or [batch, 1, width] for each batch entry.
    eps : float
        Added to the mean square.
    """
    if unfit(x, scale, shift) is None:
        return ada_rms_norm(x, scale, shift, eps)[0]
    wide = torch.promote_types(x.dtype, torch.float32)
    shift = None if shift is None else shift.to(wide)
    result: Tensor = LeanNorm.apply(x, 1.0 + scale.to(wide), shift, eps)  # type: ignore[no-untyped-call]
    return result


def _unfit(norm: Any, x: Tensor, cond: Tensor | None) -> str | None:
    """Why this call stays as it is; None if it does not. Looks at metadata only."""
    if torch.compiler.is_compiling():
        return "compiling"  # what the compiler fuses by itself
    if not x.is_floating_point() or x.dtype == torch.float64:
        return "a dtype for which the norm itself is narrower"
    if cond is None or norm.dense is None:
        return "neither weight nor condition" if norm.dense is not None else None
    if x.dim() != 3 or cond.dim() != 2 or cond.shape[0] != x.shape[0] or cond.shape[-1] != norm.cond_dim:
        return "a condition of another shape"
    return None
