# SPDX-License-Identifier: Apache-2.0
"""Groups for lerobot's PI0 and PI0.5, trained by its own `lerobot-train`."""

from __future__ import annotations

from turbo_hydra import About, group, wrap
from turbo_hydra.catalogs.models.lerobot import compat  # noqa: F401  its groups come first
from turbo_hydra.catalogs.models.lerobot.options import Checkpoint, DdpState
from turbo_hydra.catalogs.shared.options import ClipGrad, FusedOptimizer

_HERE = "turbo_hydra.catalogs.models.lerobot"
_SHARED = "turbo_hydra.catalogs.shared"
_GEMMA = "transformers.models.gemma.modeling_gemma"
_VALIDATED = "lerobot 0.6.1, transformers 5.5.4, torch 2.13 on CPU, float32 and bfloat16, a tiny model; not on a GPU"

group(
    "lerobot.checkpoint",
    wrap("torch.utils.checkpoint.checkpoint", f"{_HERE}.checkpoint.checkpoint"),
    options=Checkpoint,
    about=About(
        why="With policy.gradient_checkpointing lerobot checkpoints the joint forward as a whole, each layer in it and "
        "every small projection around it, so that most of the forward pass is computed three times. Here layers and "
        "image encoder are checkpointed, and nothing around them; a stride of 0 checkpoints no layer. Without that "
        "setting of lerobot the group changes nothing. Code that lerobot compiles is not reached by it.",
        memory="keeps each layer's input; a stride of 0 keeps all activations",
        numerics="bitwise",
        validated=_VALIDATED,
        until="lerobot checkpoints each part once",
    ),
)

group(
    "lerobot.attention",
    wrap(f"{_GEMMA}.eager_attention_forward", f"{_HERE}.attention.attention"),
    about=About(
        why="The joint forward calls the eager attention, which writes and reads scores [batch, 8, length, length] "
        "several times, casts them to float32 and repeats the one key/value head for eight heads. torch's fused "
        "attention stores no scores. The weights, which the eager one gives as well and lerobot drops, are None.",
        memory="less: no scores are kept",
        numerics="close",
        validated=_VALIDATED,
        until="lerobot's attn_implementation reaches its joint forward",
    ),
)

group(
    "lerobot.ada_rms_norm",
    wrap("lerobot.policies.pi_gemma.PiGemmaRMSNorm.forward", f"{_HERE}.ada_rms_norm.forward"),
    about=About(
        why="The norm squares, averages, scales, shifts and casts in separate passes in float32, of which autograd "
        "keeps four. It is one kernel where Triton runs, and one node of the graph elsewhere, which keeps its input.",
        memory="less: one tensor is kept instead of four",
        numerics="close",
        validated=_VALIDATED,
    ),
)

group(
    "lerobot.geglu",
    wrap(f"{_GEMMA}.GemmaMLP.forward", f"{_HERE}.geglu.forward"),
    about=About(
        why="GELU and product are two passes over [batch, length, 16384], and keep three tensors of that size. It is "
        "one kernel where Triton runs, and one node of the graph elsewhere. GELU is computed again in the backward.",
        memory="less: two tensors are kept instead of three",
        numerics="close",
        validated=_VALIDATED,
    ),
)

group(
    "lerobot.rope_once",
    wrap(f"{_GEMMA}.GemmaRotaryEmbedding.forward", f"{_SHARED}.rotary_cache.forward"),
    about=About(
        why="Each layer of the joint forward computes the cosines and sines of the same positions, and again in a "
        "recomputation. They are computed once for a tensor of positions.",
        memory="one pair of cosines and sines stays allocated",
        numerics="bitwise",
        validated=_VALIDATED,
        until="lerobot computes them once a step",
    ),
)

group(
    "lerobot.fused_adamw",
    wrap("torch.optim.AdamW.__init__", f"{_SHARED}.fused_adamw.adamw"),
    options=FusedOptimizer,
    about=About(
        why="lerobot makes AdamW without `fused`: several passes over all parameters a step, where the fused kernel "
        "reads and writes each once. Checkpoints do not tell which wrote them.",
        memory="none; less while it steps",
        numerics="close",
        validated=_VALIDATED,
        backward=False,
        until="lerobot asks for it, or torch chooses it by itself",
    ),
)

group(
    "lerobot.clip_grad",
    wrap("torch.nn.utils.clip_grad._get_total_norm", f"{_SHARED}.clip_grad.total_norm"),
    wrap("torch.nn.utils.clip_grad._clip_grads_with_norm_", f"{_SHARED}.clip_grad.scale"),
    options=ClipGrad,
    about=About(
        why="clip_grad_norm_, which accelerate calls, takes the norm of each gradient by itself, and multiplies all of "
        "them though the factor is 1. The norm is taken in one batched pass, in float32.",
        memory="none",
        numerics="close",
        validated=_VALIDATED,
        backward=False,
        until="torch does so by itself",
    ),
)

group(
    "lerobot.ddp_state",
    wrap("torch.nn.parallel.distributed.DistributedDataParallel.__init__", f"{_SHARED}.ddp_state.init"),
    options=DdpState,
    about=About(
        why="lerobot has accelerate make DistributedDataParallel search the graph for unused parameters in every step; "
        "for PI0 and PI0.5 those are always the same. It searches once; gradients live in the buckets, and the "
        "buffers, which never change, stay. Not for PEFT with parts that some steps leave out; of no use to one rank.",
        memory="less: one copy of the gradients instead of two",
        numerics="close",
        validated=f"{_VALIDATED}; two ranks",
        until="lerobot says find_unused_parameters=False for its models that need none",
    ),
)
