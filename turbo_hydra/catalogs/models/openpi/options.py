# SPDX-License-Identifier: Apache-2.0
"""Options of the groups."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from turbo_hydra.catalogs.shared import options as shared


@dataclass(frozen=True)
class Pi0Compile:
    """Options of `openpi.pi0_compile`."""

    forward_region: bool = field(
        default=True, metadata={"help": "compile the joint forward of language model and action expert"}
    )
    image_region: bool = field(default=True, metadata={"help": "compile the image encoder"})
    mode: Literal["default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs", "none"] = field(
        default="default", metadata={"help": "mode of torch.compile; none leaves both regions uncompiled"}
    )
    checkpoint: Literal["direct", "upstream"] = field(
        default="direct",
        metadata={"help": "direct: activations are kept; upstream: they are computed again in the backward pass"},
    )
    memory_budget: float = field(
        default=0.46,
        metadata={
            "help": "of what the compiled joint forward would keep, the part that it may keep: 1 keeps all that it has "
            "written; less computes first the cheap again, then the widest products, from the first layer on"
        },
    )
    image_memory_budget: float = field(
        default=0.3,
        metadata={"help": "the same for the image encoder, where a byte that is not kept costs less to compute again"},
    )
    multiple: int = field(
        default=8, metadata={"help": "pad the joint sequence to a multiple of this, with masked tokens; 1: not"}
    )


@dataclass(frozen=True)
class GemmaCheckpointStride:
    """Options of `openpi.gemma_checkpoint_stride`."""

    layer_stride: int = field(
        default=0,
        metadata={"help": "0: no layer of the joint forward is checkpointed, 1: every layer, n: every n-th"},
    )


@dataclass(frozen=True)
class PrefixTrim:
    """Options of `openpi.prefix_trim`."""

    cameras: bool = field(default=True, metadata={"help": "drop cameras that the whole batch masks"})
    bucket: int = field(
        default=64,
        metadata={"help": "cut the prompt to the batch's longest, rounded up to a multiple of this; 0: leave it"},
    )


@dataclass(frozen=True)
class DdpState(shared.DdpState):
    """Options of `openpi.ddp_state`."""

    override: tuple[str, ...] = field(
        default=("static_graph", "find_unused_parameters"),
        metadata={"help": "arguments of DistributedDataParallel that are set though OpenPI's script gives them"},
    )
