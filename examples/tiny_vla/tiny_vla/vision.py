# SPDX-License-Identifier: Apache-2.0
"""The patch encoder: one camera frame to tokens."""

import torch
import torch.nn.functional as F
from torch import nn

from tiny_vla.attention import eager_attention
from tiny_vla.config import ModelConfig
from tiny_vla.layers import checkpointed


class VisionLayer(nn.Module):
    """A pre-norm encoder layer."""

    def __init__(self, width: int, heads: int, mlp_width: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.fc1 = nn.Linear(width, mlp_width)
        self.fc2 = nn.Linear(mlp_width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, patches, width] to the same."""
        batch, length, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        x = x + self.proj(eager_attention(query, key, value, None, (width // self.heads) ** -0.5))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x)), approximate="tanh"))


class PatchEncoder(nn.Module):
    """Patches, learned positions, a few encoder layers, and a projection to the width of the prefix."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        width = config.prefix.width
        self.gradient_checkpointing = config.gradient_checkpointing
        self.patches = nn.Conv2d(3, width, kernel_size=config.patch_size, stride=config.patch_size)
        self.positions = nn.Parameter(torch.randn(config.patches, width) * 0.02)
        self.layers = nn.ModuleList(
            VisionLayer(width, config.vision_heads, config.vision_mlp_width) for _ in range(config.vision_layers)
        )
        self.norm = nn.LayerNorm(width)
        self.project = nn.Linear(width, width)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """[batch, 3, height, width] in [-1, 1] to [batch, patches, prefix width]."""
        x = self.patches(image).flatten(2).transpose(1, 2) + self.positions
        for layer in self.layers:
            x = checkpointed(layer, x) if self.gradient_checkpointing else layer(x)
        return self.project(self.norm(x))
