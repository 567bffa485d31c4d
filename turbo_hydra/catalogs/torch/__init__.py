# SPDX-License-Identifier: Apache-2.0
"""Groups that serve every training script that uses torch."""

from __future__ import annotations

from turbo_hydra import About, group, wrap
from turbo_hydra.catalogs.shared.options import ClipGrad, DdpState, FusedOptimizer

_SHARED = "turbo_hydra.catalogs.shared"

group(
    "torch.fused_adamw",
    wrap("torch.optim.AdamW.__init__", f"{_SHARED}.fused_adamw.adamw"),
    wrap("torch.optim.Adam.__init__", f"{_SHARED}.fused_adamw.adam"),
    wrap("torch.optim.SGD.__init__", f"{_SHARED}.fused_adamw.sgd"),
    options=FusedOptimizer,
    about=About(
        why="AdamW, Adam and SGD made without `fused` and `foreach` run several small operations a tensor on a CPU and "
        "several passes over all parameters on a GPU. The fused kernel reads and writes each once. An optimizer whose "
        "script chose one of the two, also for a group of parameters, is differentiable, or has parameters that the "
        "fused kernel does not take, stays as it is. SGD chooses at each step, since it takes sparse gradients too.",
        memory="none; less while it steps",
        numerics="close",
        validated="torch 2.11 and 2.13; CPU float32 and bfloat16",
        backward=False,
        compile=True,
        until="torch chooses the fused kernel by itself",
    ),
)

group(
    "torch.ddp_state",
    wrap("torch.nn.parallel.distributed.DistributedDataParallel.__init__", f"{_SHARED}.ddp_state.init"),
    options=DdpState,
    about=About(
        why="DistributedDataParallel searches the graph for unused parameters in every step where the script asks for "
        "it, copies gradients into the buckets and sends rank 0's buffers before every forward. For a graph that never "
        "changes it is searched once; gradients live in the buckets; buffers stay unless the model has running "
        "statistics. What the script gives itself stays as given.",
        memory="less: one copy of the gradients instead of two",
        numerics="close",
        validated="torch 2.13 on CPU, float32; two ranks",
    ),
)

group(
    "torch.clip_grad",
    wrap("torch.nn.utils.clip_grad._get_total_norm", f"{_SHARED}.clip_grad.total_norm"),
    wrap("torch.nn.utils.clip_grad._clip_grads_with_norm_", f"{_SHARED}.clip_grad.scale"),
    options=ClipGrad,
    about=About(
        why="clip_grad_norm_ takes the norm of each gradient in the gradient's own precision and multiplies all "
        "gradients though the factor is 1. The norms are taken in one batched pass in float32 at least, and on a CPU, "
        "where looking at a number waits for nothing, gradients below the limit are left alone.",
        memory="none",
        numerics="close",
        validated="torch 2.13 on CPU; float64, float32, float16 and bfloat16",
        backward=False,
        compile=True,
    ),
)
