# SPDX-License-Identifier: Apache-2.0
"""Groups that serve every training script that uses torch."""

from __future__ import annotations

from turbo_hydra import About, group, wrap
from turbo_hydra.catalogs.shared.options import ClipGrad, DdpState, FusedOptimizer
from turbo_hydra.catalogs.torch.options import (
    ChannelsLast,
    CheckpointOff,
    Compile,
    DataLoading,
    GcFreeze,
    MatmulPrecision,
)

_HERE = "turbo_hydra.catalogs.torch"
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
        validated="torch 2.13 on CPU, float64, float32 and bfloat16; SGD without bfloat16",
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
        "gradients though the factor is 1. The norms are taken in one batched pass in float32 at least (one launch for "
        "each dtype where Triton kernels run), and on a CPU, "
        "where looking at a number waits for nothing, gradients below the limit are left alone.",
        memory="none",
        numerics="close",
        validated="torch 2.13 on CPU; float64, float32, float16 and bfloat16",
        backward=False,
        compile=True,
    ),
)

group(
    "torch.dataloader",
    wrap("torch.utils.data.dataloader.DataLoader.__init__", f"{_HERE}.dataloader.init"),
    options=DataLoading,
    about=About(
        why="A DataLoader with workers stops them after each epoch, starts them anew for the next, and hands out "
        "batches in memory that an accelerator copies from only while the host waits. Workers of a map-style data set "
        "stay, have more batches ready, and batches are pinned where there is an accelerator. What the script gives "
        "itself stays as given.",
        memory="pinned host memory, and prefetch_factor batches a worker",
        numerics="changes training",
        validated="torch 2.13 on CPU; workers by fork and spawn. Random augmentations draw other numbers from the "
        "second epoch on",
        backward=False,
    ),
)

group(
    "torch.matmul_precision",
    wrap("torch.optim.optimizer.Optimizer.__init__", f"{_HERE}.matmul_precision.init"),
    options=MatmulPrecision,
    about=About(
        why="Products of float32 matrices leave the tensor cores idle unless torch is told that fewer digits will do. "
        "It is told so when the first optimizer is made, unless a precision is set already. The precision is a state "
        "of the process and not an object: it stays when the group is taken back.",
        memory="none",
        numerics="changes training",
        validated="torch 2.13 on CPU, where only `medium` and only on some changes anything",
    ),
)

group(
    "torch.channels_last",
    wrap("torch.nn.modules.conv.Conv2d._conv_forward", f"{_HERE}.channels_last.conv_forward"),
    options=ChannelsLast,
    about=About(
        why="Convolution kernels of recent devices want channels last and copy images that are laid otherwise, before "
        "and after each layer. The input of a 2D convolution is laid so once; its output and what follows keep the "
        "layout. Code that calls view() on a convolution's output may refuse it: reshape() and flatten() do not.",
        memory="one copy of the first image",
        numerics="close",
        validated="torch 2.13 on CPU, float32 and bfloat16",
    ),
)

group(
    "torch.deferred_item",
    wrap("torch.Tensor.backward", f"{_HERE}.deferred_item.backward"),
    about=About(
        why="A loop that logs `loss.item()` in each step waits for the device in each step. After backward() the "
        "loss's number is copied in the background, and waited for when somebody compares it, formats it or calculates "
        "with it; sums are deferred too. It is no float: `isinstance(x, float)` says no. On a CPU there is nothing to "
        "wait for.",
        memory="one pinned number a call",
        numerics="bitwise",
        validated="torch 2.13 on CPU: the number itself; its copy in the background has not been seen on a device",
        backward=False,
    ),
)

group(
    "torch.gc_freeze",
    wrap("torch.utils.data.dataloader.DataLoader.__iter__", f"{_HERE}.gc_freeze.iterate"),
    options=GcFreeze,
    about=About(
        why="Python's garbage collector walks through everything that lives, modules, model and data set, each time "
        "that enough has been allocated since. What lives when the first batch is asked for is set aside, before "
        "workers are forked, which then share more of it. Cycles among it are never collected.",
        memory="cycles of objects that were made before training are kept",
        numerics="bitwise",
        validated="torch 2.13 on CPU",
        backward=False,
    ),
)

group(
    "torch.compile",
    wrap("torch.nn.modules.module.Module.__init__", f"{_HERE}.compiling.init"),
    options=Compile,
    compatibility_check=f"{_HERE}.compiling.check",
    about=About(
        why="Norms, activations, residuals and other small operations each read and write their tensors. Instances of "
        "the module classes that the option `modules` names are compiled as they are made, which makes few passes of "
        "many. Compiling takes seconds to minutes at the first call; copies of an instance are not compiled.",
        memory="often less: fewer activations are kept",
        numerics="close",
        validated="torch 2.13 on CPU, float32",
        compiles=True,
    ),
)

group(
    "torch.checkpoint_off",
    wrap("torch.utils.checkpoint.checkpoint", f"{_HERE}.checkpoint_off.checkpoint"),
    options=CheckpointOff,
    about=About(
        why="A checkpointed part of a model is computed a second time in the backward pass, though its activations may "
        "fit into memory. They are kept. Calls whose largest argument is above a size stay, and so do those that "
        "choose what is kept, and reentrant ones through which gradients would flow otherwise.",
        memory="keeps all activations of the checkpointed parts",
        numerics="bitwise",
        validated="torch 2.13 on CPU, float32; reentrant and not, with dropout",
    ),
)
