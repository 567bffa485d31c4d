# SPDX-License-Identifier: Apache-2.0
"""Options of the shared replacements; no torch here, so that catalogs can name them."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class FusedOptimizer:
    """Options of groups on `fused_adamw`."""

    optimizers: tuple[str, ...] = field(
        default=("AdamW", "Adam"),
        metadata={"help": "classes of torch.optim whose fused kernel is chosen; SGD's gains nothing on a CPU"},
    )


@dataclass(frozen=True)
class DdpState:
    """Options of groups on `ddp_state`."""

    static_graph: bool = field(
        default=True, metadata={"help": "find the parameters without gradient once, instead of in every step"}
    )
    bucket_view: bool = field(default=True, metadata={"help": "gradients live in the buckets that are exchanged"})
    broadcast_buffers: bool = field(
        default=False,
        metadata={"help": "send rank 0's buffers before every forward; models with running statistics always do"},
    )
    override: tuple[str, ...] = field(
        default=(),
        metadata={"help": "arguments of DistributedDataParallel that are set though the script gives them"},
    )


@dataclass(frozen=True)
class ClipGrad:
    """Options of groups on `clip_grad`."""

    skip_unclipped: bool = field(
        default=True, metadata={"help": "on a CPU, leave gradients alone whose norm is below the limit"}
    )


@dataclass(frozen=True)
class GatedMlp:
    """Options of groups on `gated_mlp`."""

    exact: bool = field(
        default=False,
        metadata={"help": "bfloat16: look the activation up in a table that the library filled, bitwise its result"},
    )
