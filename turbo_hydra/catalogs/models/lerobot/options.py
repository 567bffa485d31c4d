# SPDX-License-Identifier: Apache-2.0
"""Options of the groups."""

from __future__ import annotations

from dataclasses import dataclass, field

from turbo_hydra.catalogs.shared import options as shared


@dataclass(frozen=True)
class Tiny:
    """Options of `lerobot.tiny`: sizes that two CPU cores can train."""

    width: int = field(default=128, metadata={"help": "of the language model"})
    expert_width: int = field(default=64, metadata={"help": "of the action expert"})
    depth: int = field(default=2, metadata={"help": "layers of both"})
    head_dim: int = field(default=16, metadata={"help": "of each of the 8 heads, in both"})
    vision_width: int = field(default=64, metadata={"help": "of the image encoder, which has two layers"})
    vocabulary: int = field(default=2048, metadata={"help": "tokens; those of the tokenizer must fit"})


@dataclass(frozen=True)
class Checkpoint:
    """Options of `lerobot.checkpoint`."""

    layer_stride: int = field(
        default=1, metadata={"help": "0: no layer of the joint forward is checkpointed, 1: every layer, n: every n-th"}
    )
    whole: bool = field(
        default=False, metadata={"help": "checkpoint the joint forward as a whole too, around its layers"}
    )
    images: bool = field(default=True, metadata={"help": "checkpoint the image encoder"})


@dataclass(frozen=True)
class DdpState(shared.DdpState):
    """Options of `lerobot.ddp_state`."""

    override: tuple[str, ...] = field(
        default=("find_unused_parameters",),
        metadata={"help": "arguments of DistributedDataParallel that are set though lerobot gives them"},
    )
