# SPDX-License-Identifier: Apache-2.0
"""What the repository offers, by torch's own operations; it counts its calls."""

from __future__ import annotations

from collections import Counter

import torch
from torch import Tensor, nn

CALLS: Counter[str] = Counter()


class Norm(nn.Module):
    """What `forward` of a Llama norm does; the module that it is bound to has the weight."""

    has_backward = True
    weight: Tensor
    variance_epsilon: float

    def forward(self, hidden_states: Tensor) -> Tensor:
        """Scale by the root of the mean square, and by the weight."""
        CALLS["norm"] += 1
        scale = torch.rsqrt(hidden_states.square().mean(-1, keepdim=True) + self.variance_epsilon)
        return self.weight * (hidden_states * scale)


class Rotary(nn.Module):
    """What `apply_rotary_pos_emb` does."""

    has_backward = True

    def forward(self, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, unsqueeze_dim: int = 1) -> tuple[Tensor, Tensor]:
        """Rotate queries and keys."""
        CALLS["rotary"] += 1
        cos, sin = cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim)

        def turned(x: Tensor) -> Tensor:
            first, second = x.chunk(2, -1)
            return x * cos + torch.cat((-second, first), -1) * sin

        return turned(q), turned(k)
