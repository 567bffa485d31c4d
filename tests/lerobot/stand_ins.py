# SPDX-License-Identifier: Apache-2.0
"""Modules with the interfaces of lerobot's and transformers', written out."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class PytorchGELUTanh(nn.Module):
    """The activation, by the name that transformers has for it."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.gelu(x, approximate="tanh")


class Mlp(nn.Module):
    """A gated MLP."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.gate_proj, self.up_proj = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.down_proj = nn.Linear(inner, width, bias=False)
        self.act_fn: nn.Module = PytorchGELUTanh()

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))
        return result


class Norm(nn.Module):
    """An RMS norm that a condition modulates: (normed, gate)."""

    def __init__(self, width: int, cond_dim: int | None = None, eps: float = 1e-6) -> None:
        super().__init__()
        self.eps, self.cond_dim = eps, cond_dim
        self.dense = None if cond_dim is None else nn.Linear(cond_dim, 3 * width)
        if cond_dim is None:
            self.weight = nn.Parameter(torch.randn(width))

    def forward(self, x: Tensor, cond: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        normed = x.float() * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + self.eps)
        if cond is None or self.dense is None:
            return (normed * (1 + self.weight.float())).to(x.dtype), None
        scale, shift, gate = self.dense(cond).unsqueeze(1).chunk(3, dim=-1)
        return (normed * (1 + scale.float()) + shift.float()).to(x.dtype), gate.to(x.dtype)


class Heads(nn.Module):
    """What the eager attention asks of the module that calls it."""

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.num_key_value_groups = groups


def eager_attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    **kwargs: Any,
) -> tuple[Tensor, Tensor]:
    """Attention step by step: ([batch, length, heads, width], weights)."""
    repeated = [item.repeat_interleave(module.num_key_value_groups, dim=1) for item in (key, value)]
    scores = query @ repeated[0].transpose(2, 3) * scaling
    scores = scores if attention_mask is None else scores + attention_mask
    weights = scores.softmax(-1, dtype=torch.float32).to(query.dtype)
    return (weights @ repeated[1]).transpose(1, 2).contiguous(), weights
