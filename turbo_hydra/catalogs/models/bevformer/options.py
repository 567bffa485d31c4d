# SPDX-License-Identifier: Apache-2.0
"""Options of the groups."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from turbo_hydra.catalogs.shared import options as shared


@dataclass(frozen=True)
class Compile:
    """Options of `bevformer.compile_encoder` and `bevformer.compile_decoder`."""

    mode: Literal["default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"] = field(
        default="default", metadata={"help": "mode of torch.compile"}
    )
    dynamic: bool | None = field(
        default=None, metadata={"help": "torch.compile's dynamic: shapes as symbols; None: once they have changed"}
    )


@dataclass(frozen=True)
class Data:
    """Options of `bevformer.data`."""

    pin_memory: bool = field(
        default=True, metadata={"help": "batches are copied to the accelerator from pinned memory; where there is one"}
    )
    prefetch_factor: int = field(default=4, metadata={"help": "batches that each worker has ready; 0 leaves torch's 2"})
    frames: int = field(
        default=0, metadata={"help": "decoded frames that each process keeps, 8.6 MB a camera image; 0: none"}
    )


@dataclass(frozen=True)
class Training(shared.FusedOptimizer, shared.DdpState):
    """Options of `bevformer.training`."""

    static_graph: bool = field(
        default=False,
        metadata={"help": "find the parameters without gradient once; only where each step uses the same ones"},
    )
