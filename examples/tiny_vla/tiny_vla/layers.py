# SPDX-License-Identifier: Apache-2.0
"""Norms, the gated MLP and checkpointing, shared by both transformers."""

from typing import Any

import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from torch import nn


class RMSNorm(nn.Module):
    """Root mean square norm. With a condition it is adaptive: scale, shift and gate come from the condition."""

    def __init__(self, width: int, condition_width: int | None = None, eps: float = 1e-6) -> None:
        super().__init__()
        self.eps = eps
        if condition_width is None:
            self.weight = nn.Parameter(torch.zeros(width))
            self.modulation = None
        else:
            self.register_parameter("weight", None)
            self.modulation = nn.Linear(condition_width, 3 * width)
            nn.init.zeros_(self.modulation.weight)
            nn.init.zeros_(self.modulation.bias)

    def forward(
        self, x: torch.Tensor, condition: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Normed ``x`` [batch, length, width] and its gate [batch, 1, width] (None without a condition)."""
        normed = x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + self.eps)
        if self.modulation is None:
            return (normed * (1.0 + self.weight.float())).to(x.dtype), None
        if condition is None:
            raise ValueError("an adaptive norm needs a condition")
        scale, shift, gate = self.modulation(condition).unsqueeze(1).chunk(3, dim=-1)
        return (normed * (1.0 + scale.float()) + shift.float()).to(x.dtype), gate.to(x.dtype)


def gated_residual(x: torch.Tensor, y: torch.Tensor, gate: torch.Tensor | None) -> torch.Tensor:
    return x + y if gate is None else x + y * gate


class GeGLU(nn.Module):
    """down(gelu_tanh(gate(x)) * up(x))."""

    def __init__(self, width: int, mlp_width: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(width, mlp_width, bias=False)
        self.up_proj = nn.Linear(width, mlp_width, bias=False)
        self.down_proj = nn.Linear(mlp_width, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(F.gelu(self.gate_proj(x), approximate="tanh") * self.up_proj(x))


def checkpointed(layer: nn.Module, *args: Any) -> Any:
    """Call ``layer``; in training its activations are computed again in the backward pass instead of kept."""
    if layer.training and torch.is_grad_enabled():
        return torch.utils.checkpoint.checkpoint(layer, *args, use_reentrant=False, preserve_rng_state=False)
    return layer(*args)
