# SPDX-License-Identifier: Apache-2.0
"""Options of the groups."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class CheckpointOff:
    """Options of `tiny_vla.checkpoint_off`."""

    keep_above: int = field(
        default=0, metadata={"help": "layers that get more tokens (batch x length) stay checkpointed; 0: none"}
    )


@dataclass(frozen=True)
class FusedAttention:
    """Options of `tiny_vla.fused_attention`."""

    min_length: int = field(default=0, metadata={"help": "shorter sequences keep the eager attention"})


@dataclass(frozen=True)
class CompileLayer:
    """Options of `tiny_vla.compile_layer`."""

    mode: str = field(default="default", metadata={"help": "mode of torch.compile"})
    vision: bool = field(default=True, metadata={"help": "also the layers of the patch encoder"})
