# SPDX-License-Identifier: Apache-2.0
"""Sizes of the model. The defaults have about 1.2 million parameters."""

from dataclasses import dataclass


@dataclass(frozen=True)
class StreamConfig:
    """One of the two transformers that attend jointly."""

    width: int
    mlp_width: int


@dataclass(frozen=True)
class ModelConfig:
    image_size: int = 48
    patch_size: int = 6
    cameras: int = 2
    vision_layers: int = 2
    vision_heads: int = 4
    vision_mlp_width: int = 256
    vocabulary: int = 64
    instruction_length: int = 12
    proprio_size: int = 4
    action_size: int = 4
    horizon: int = 10
    layers: int = 4
    heads: int = 4
    head_size: int = 32
    prefix: StreamConfig = StreamConfig(width=128, mlp_width=256)
    expert: StreamConfig = StreamConfig(width=64, mlp_width=192)
    gradient_checkpointing: bool = True

    @property
    def patches(self) -> int:
        """Patches of one camera frame."""
        return (self.image_size // self.patch_size) ** 2
