# SPDX-License-Identifier: Apache-2.0
"""The groups. This module is imported wherever groups are listed or checked: it imports no torch and no model."""

from dataclasses import dataclass, field

from turbo_hydra import About, group, replace, wrap


@dataclass
class CachedMask:
    """Options of `my_optimizations.cached_mask`."""

    longest: int = field(default=4096, metadata={"help": "masks of longer sequences are made anew each time"})


group(
    "my_optimizations.rms_norm",
    replace("sample_model.layers.RMSNorm.forward", "my_optimizations.replacements.rms_norm_forward"),
    about=About(
        why="The norm is written in six operations that each read and write all of the activations; torch has one.",
        memory="less: what the operations hand on to the backward pass is not kept",
        numerics="close",
        validated="torch 2.13 on CPU, float32",
        until="the model calls torch's norm itself",
    ),
)

group(
    "my_optimizations.cached_mask",
    wrap("sample_model.layers.causal_mask", "my_optimizations.replacements.cached_mask"),
    options=CachedMask,
    about=About(
        why="Every layer makes the same causal mask in every step. It is made once for a length and a device.",
        memory="one mask for each length that was seen",
        numerics="bitwise",
        validated="torch 2.13 on CPU, float32",
    ),
)
