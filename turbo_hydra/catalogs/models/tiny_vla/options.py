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
class DdpState:
    """Options of `tiny_vla.ddp_state`."""

    static_graph: bool = field(
        default=True, metadata={"help": "find the parameters without gradient once, instead of in every step"}
    )
    bucket_view: bool = field(default=True, metadata={"help": "gradients live in the buckets that are exchanged"})
    broadcast_buffers: bool = field(default=False, metadata={"help": "send rank 0's buffers before every forward"})


@dataclass(frozen=True)
class CompileLayer:
    """Options of `tiny_vla.compile_layer`."""

    mode: str = field(default="default", metadata={"help": "mode of torch.compile"})
    vision: bool = field(default=True, metadata={"help": "also the layers of the patch encoder"})
