# SPDX-License-Identifier: Apache-2.0
"""Options of the groups."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class DataLoading:
    """Options of `torch.dataloader`."""

    pin_memory: bool = field(
        default=True, metadata={"help": "batches are copied to the accelerator from pinned memory; where there is one"}
    )
    persistent_workers: bool = field(
        default=True, metadata={"help": "workers live from one epoch to the next; map-style data sets only"}
    )
    prefetch_factor: int = field(default=4, metadata={"help": "batches that each worker has ready; 0 leaves torch's 2"})


@dataclass(frozen=True)
class MatmulPrecision:
    """Options of `torch.matmul_precision`."""

    precision: Literal["high", "medium"] = field(
        default="high", metadata={"help": "of float32 products: high is TF32 on GPUs, medium bfloat16"}
    )


@dataclass(frozen=True)
class ChannelsLast:
    """Options of `torch.channels_last`."""

    min_channels: int = field(default=8, metadata={"help": "convolutions of fewer input channels stay as they are"})


@dataclass(frozen=True)
class GcFreeze:
    """Options of `torch.gc_freeze`."""

    collect: bool = field(default=True, metadata={"help": "collect what is garbage before the rest is set aside"})


@dataclass(frozen=True)
class Compile:
    """Options of `torch.compile`."""

    modules: tuple[str, ...] = field(
        default=("torch.nn.modules.transformer.Transformer*Layer",),
        metadata={"help": "dotted paths of the module classes to compile, as their modules define them; globs"},
    )
    mode: str = field(default="default", metadata={"help": "mode of torch.compile"})
    dynamic: bool | None = field(default=None, metadata={"help": "torch.compile's dynamic: shapes as symbols"})
    fullgraph: bool = field(default=False, metadata={"help": "a break of the graph is an error"})


@dataclass(frozen=True)
class CheckpointOff:
    """Options of `torch.checkpoint_off`."""

    keep_above: int = field(
        default=0, metadata={"help": "calls with an argument of more elements stay checkpointed; 0: none"}
    )
