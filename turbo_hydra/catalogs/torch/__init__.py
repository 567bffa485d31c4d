# SPDX-License-Identifier: Apache-2.0
"""Groups that serve every training script that uses torch."""

from __future__ import annotations

from turbo_hydra import About, group, wrap

group(
    "torch.fused_adamw",
    wrap("torch.optim.AdamW.__init__", "turbo_hydra.catalogs.torch.fused_adamw.init"),
    about=About(
        why="AdamW made without `fused` and `foreach` runs about ten small operations a tensor on a CPU, and several "
        "passes over all parameters on a GPU. The fused kernel reads and writes each once. An AdamW whose script chose "
        "one of the two, is differentiable, or has parameters that the fused kernel does not take, stays as it is.",
        memory="none; less while it steps",
        numerics="close",
        validated="torch 2.11 and 2.13; CPU float32 and bfloat16",
        backward=False,
        compile=True,
        until="torch chooses the fused kernel by itself",
    ),
)
