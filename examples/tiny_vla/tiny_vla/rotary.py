# SPDX-License-Identifier: Apache-2.0
"""Rotary position embedding."""

import torch
from torch import nn


class RotaryEmbedding(nn.Module):
    """Angles of the positions."""

    inverse_frequency: torch.Tensor

    def __init__(self, head_size: int, base: float = 10_000.0) -> None:
        super().__init__()
        exponent = torch.arange(0, head_size, 2, dtype=torch.float32) / head_size
        self.register_buffer("inverse_frequency", base**-exponent, persistent=False)

    @torch.no_grad()
    def forward(self, x: torch.Tensor, position_ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosine and sine [batch, length, head_size] in the type of ``x`` for ``position_ids`` [batch, length]."""
        angles = position_ids[:, :, None].float() * self.inverse_frequency[None, None, :]
        angles = torch.cat((angles, angles), dim=-1)
        return angles.cos().to(x.dtype), angles.sin().to(x.dtype)


def rotate_half(x: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


def apply_rotary(
    query: torch.Tensor, key: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Turn query and key [batch, heads, length, head_size] by the angles [batch, length, head_size]."""
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    return query * cos + rotate_half(query) * sin, key * cos + rotate_half(key) * sin
