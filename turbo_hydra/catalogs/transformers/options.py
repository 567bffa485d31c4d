# SPDX-License-Identifier: Apache-2.0
"""Options of the groups."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class Loss:
    """Options of the groups `*_loss`."""

    when: Literal["training", "always"] = field(
        default="training",
        metadata={
            "help": "training: outputs of a model in evaluation have their logits, those of one in training have none; "
            "always: none wherever labels are given"
        },
    )


@dataclass(frozen=True)
class Attention:
    """Options of `transformers.attention`."""

    implementation: Literal["sdpa", "eager", "flex_attention", "flash_attention_2"] = field(
        default="sdpa", metadata={"help": "what models get, where their class says that it supports it"}
    )
    instead_of: tuple[str, ...] = field(
        default=("eager",),
        metadata={"help": "only models that would use one of these; also where the script chose it"},
    )
