# SPDX-License-Identifier: Apache-2.0
"""Groups for OpenPI's PI0 and PI0.5 as they are trained in PyTorch."""

from __future__ import annotations

from turbo_hydra import About, group, wrap
from turbo_hydra.catalogs.models.openpi import compat, uncompiled  # noqa: F401  their groups come first
from turbo_hydra.catalogs.models.openpi.names import GEMMA, HERE, SERVED, SHARED, SMALL
from turbo_hydra.catalogs.models.openpi.options import DdpState, GemmaCheckpointStride, Pi0Compile, PrefixTrim
from turbo_hydra.catalogs.shared.options import ClipGrad, FusedOptimizer

_PI0 = "openpi.models_pytorch.pi0_pytorch.PI0Pytorch"
_JOINT = "openpi.models_pytorch.gemma_pytorch.PaliGemmaWithExpertModel"
_CARD = "torch 2.11 on an H200, bfloat16, PI0.5 at full size, batch 32"
_VALIDATED = f"{SMALL}; {_CARD}"

group(
    "openpi.pi0_compile",
    wrap(f"{_PI0}._apply_checkpoint", f"{HERE}.pi0_compile.apply_checkpoint", stack=True),
    depends_on=SERVED,
    options=Pi0Compile,
    compatibility_check=f"{HERE}.pi0_compile.check",
    about=About(
        why="Training checkpoints each part of the model, so that the backward pass computes the forward pass again, "
        "and runs norms, rotary embedding, softmax, gates and residuals as separate passes over the activations. The "
        "joint forward and the image encoder are compiled, their activations are kept, and the joint sequence is "
        "padded with masked tokens to a length that matrix products like. Compiling takes two to three minutes a "
        "length on first use.",
        memory="keeps activations of both regions, at batch 32 of PI0.5 together with openpi.gemma_checkpoint_stride: "
        "34 to 126 GiB where all is kept, 59 GiB as configured; of two cameras and short prompts 47 GiB; checkpoint: "
        "upstream keeps them as upstream does",
        numerics="close",
        validated=_VALIDATED,
        compiles=True,
        until="OpenPI compiles its training step and lets checkpointing be switched off",
    ),
)

group(
    "openpi.camera_batch",
    wrap(f"{_PI0}.embed_prefix", f"{HERE}.camera_batch.embed_prefix", stack=True),
    wrap(f"{_PI0}._apply_checkpoint", f"{HERE}.camera_batch.apply_checkpoint", stack=True),
    depends_on=SERVED,
    about=About(
        why="The image encoder is called for one camera after the other: three times 81 norms, gates and products of "
        "32 images each, and three gradients of each of its parameters to be added up. All cameras of a batch go "
        "through it together.",
        memory="none",
        numerics="close",
        validated=_VALIDATED,
        until="OpenPI embeds its cameras together",
    ),
)

group(
    "openpi.async_masks",
    wrap(f"{_PI0}.embed_prefix", f"{HERE}.async_masks.embed", stack=True),
    wrap(f"{_PI0}.embed_suffix", f"{HERE}.async_masks.embed"),
    wrap(f"{_PI0}._apply_checkpoint", f"{HERE}.async_masks.apply_checkpoint", stack=True),
    depends_on=SERVED,
    about=About(
        why="Prefix and suffix make a tensor of a list that says for each token where attention ends. The copy waits "
        "until the image encoder is done, and the joint forward is queued on a device that has nothing left to do. "
        "The list is copied from pinned memory, which waits for nothing.",
        memory="none",
        numerics="bitwise",
        validated=f"{_CARD}: equal tensors, nothing waits",
        until="OpenPI makes these masks on the device",
    ),
)

group(
    "openpi.gemma_checkpoint_stride",
    wrap(f"{_JOINT}.forward", f"{HERE}.gemma_checkpoint_stride.forward"),
    wrap("torch.utils.checkpoint.checkpoint", f"{HERE}.gemma_checkpoint_stride.checkpoint"),
    depends_on=SERVED,
    options=GemmaCheckpointStride,
    about=About(
        why="The joint forward checkpoints each of its 18 layers whenever it trains, whatever the model's switches "
        "say, beside the checkpoint around the whole. Here every n-th layer is checkpointed, or none. The second "
        "target matters for strides above 1 only; under torch.compile such a stride means every layer.",
        memory="a stride of 0 keeps all layers' activations: more than 139 GiB at batch 32 of PI0.5; in a compiled "
        "region what openpi.pi0_compile's memory_budget says",
        numerics="bitwise",
        validated=_VALIDATED,
        until="OpenPI heeds gradient_checkpointing_disable",
    ),
)

group(
    "openpi.prefix_trim",
    wrap(f"{_PI0}._preprocess_observation", f"{HERE}.prefix_trim.preprocess_observation"),
    depends_on=SERVED,
    options=PrefixTrim,
    about=About(
        why="Three cameras and a prompt padded to 200 tokens are always embedded and taken through all layers, though "
        "masked tokens are never attended to. Cameras that the whole batch masks and the padding beyond its longest "
        "prompt are left out, in buckets, so that few lengths are compiled. One transfer a step tells what is masked.",
        memory="less, in proportion to the tokens: 126 to 87 GiB at batch 32 of PI0.5 with two cameras and prompts of "
        "up to 118 tokens, all kept",
        numerics="close",
        validated=_VALIDATED,
        until="OpenPI leaves masked tokens out",
    ),
)

group(
    "openpi.rope_cache",
    wrap(f"{GEMMA}.GemmaRotaryEmbedding.forward", f"{SHARED}.rotary_cache.forward"),
    depends_on=SERVED,
    about=About(
        why="Each of 18 layers computes the cosines and sines of the same positions, and again in the recomputation. "
        "They are computed once for a tensor of positions. A compiled region sees that they are the same, and fuses "
        "them into each of 36 kernels, which compute them again for every head: there they are written once.",
        memory="one pair of cosines and sines stays allocated",
        numerics="bitwise",
        validated=_VALIDATED,
        until="OpenPI computes them once a step",
    ),
)

group(
    "openpi.ddp_state",
    wrap("torch.nn.parallel.distributed.DistributedDataParallel.__init__", f"{SHARED}.ddp_state.init"),
    options=DdpState,
    about=About(
        why="With fewer than eight ranks OpenPI has DistributedDataParallel search the graph for unused parameters in "
        "every step; those are the expert's output head and the prefix's half of the last layer, always the same. It "
        "searches once. OpenPI's own argument static_graph is overridden; gradients live in the buckets; there are no "
        "buffers that change. One rank is not touched by it.",
        memory="none",
        numerics="close",
        validated=f"{SMALL}; two ranks",
        until="OpenPI sets static_graph for any number of ranks",
    ),
)

group(
    "openpi.fused_adamw",
    wrap("torch.optim.AdamW.__init__", f"{SHARED}.fused_adamw.adamw"),
    options=FusedOptimizer,
    about=About(
        why="OpenPI's script makes AdamW without `fused`: several passes over all parameters a step, where the fused "
        "kernel reads and writes each once. An optimizer of another script that chose for itself, is differentiable or "
        "has parameters that the kernel does not take stays as it is. Checkpoints do not tell which wrote them.",
        memory="none; less while it steps",
        numerics="close",
        validated=_VALIDATED,
        backward=False,
        until="OpenPI asks for it, or torch chooses it by itself",
    ),
)

group(
    "openpi.clip_grad",
    wrap("torch.nn.utils.clip_grad._get_total_norm", f"{SHARED}.clip_grad.total_norm", stack=True),
    wrap("torch.nn.utils.clip_grad._clip_grads_with_norm_", f"{SHARED}.clip_grad.scale", stack=True),
    options=ClipGrad,
    about=About(
        why="clip_grad_norm_ takes the norm of each of 850 gradients in bfloat16 and moves each to the first one's "
        "device by itself. The norm is taken in one launch for each dtype, in float32 (a Triton kernel, or torch's "
        "batched operation where there is none), and nothing waits for the device.",
        memory="none",
        numerics="close",
        validated=_VALIDATED,
        backward=False,
        until="torch does so by itself",
    ),
)

group(
    "openpi.clipped_adamw",
    wrap("torch.nn.utils.clip_grad._get_total_norm", f"{SHARED}.clipped_adamw.total_norm", stack=True),
    wrap("torch.nn.utils.clip_grad._clip_grads_with_norm_", f"{SHARED}.clipped_adamw.scale", stack=True),
    wrap("torch.optim.adam.adam", f"{SHARED}.clipped_adamw.adam"),
    about=About(
        why="OpenPI's script clips, steps and drops the gradients, and nothing reads them in between: the clip's "
        "factor is handed to the step, a Triton kernel, which multiplies each gradient as it reads it, so that no pass "
        "scales 850 gradients. Between the two `grad` is as backward left it: not for scripts that read it there, and "
        "one that writes to it is ended with an error. On one H200 norm, scale and step together take 12.5 ms for 24.1 "
        "by themselves.",
        memory="none",
        numerics="close",
        validated=f"torch 2.13, float32 and bfloat16, in Triton's interpreter; {_CARD}",
        backward=False,
        until="torch's fused AdamW takes a factor",
    ),
)

group(
    "openpi.deferred_metrics",
    wrap(f"{_PI0}.forward", f"{HERE}.deferred_metrics.forward"),
    wrap(
        "torch.nn.utils.clip_grad.clip_grad_norm_",
        f"{HERE}.deferred_metrics.clip",
        aliases=("torch.nn.utils.clip_grad_norm_",),
    ),
    depends_on=SERVED,
    about=About(
        why="Each step OpenPI's script reads the loss twice and the gradient norm once, and waits for the device each "
        "time, though it needs the values at its log interval. They are read when they are computed with. The log's "
        "figures are the same; the progress bar shows the newest loss that has arrived, a step behind.",
        memory="none",
        numerics="bitwise",
        validated=_VALIDATED,
        until="OpenPI reads its metrics at the log interval",
    ),
)

group(
    "openpi.strided_attention",
    wrap(
        "transformers.integrations.sdpa_attention.sdpa_attention_forward",
        f"{SHARED}.strided_attention.attention",
        # The table that models look into.
        aliases=("transformers.modeling_utils.AttentionInterface._global_mapping.sdpa",),
    ),
    depends_on=SERVED,
    about=About(
        why="The image encoder's queries, keys and values are copied before attention, its result after, and all their "
        "gradients, in each of 27 layers: 7 ms a step by trace at batch 32 of three cameras. Torch's kernels take "
        "them as they lie.",
        memory="none",
        numerics="close",
        validated=_VALIDATED,
        until="a transformers without these copies, as 5.5 is",
    ),
)

group(
    "openpi.prefix_attention",
    wrap(f"{GEMMA}.eager_attention_forward", f"{HERE}.prefix_attention.attention", stack=True),
    depends_on=SERVED,
    about=About(
        why="The eager attention stores scores [batch, 8, length, length] and computes those that the mask hides: of a "
        "prefix, what masked tokens see and are seen by. The kernel skips hidden tiles and stores no scores. With "
        "openpi.softmax on as well this one is used.",
        memory="less: no scores are kept",
        numerics="close",
        validated=_VALIDATED,
    ),
)

group(
    "openpi.tensor_batches",
    wrap("openpi.training.data_loader._collate_fn", f"{HERE}.tensor_batches.collate"),
    depends_on=SERVED,
    about=About(
        why="Workers of the loader send batches of NumPy arrays through a pipe: 58 MB at batch 32, which the "
        "training process reads and copies while the device waits, about 60 ms a step. As tensors they lie in shared "
        "memory, and the loader makes tensors of them anyway. Where shared memory is small (a container's default), "
        "they go through the pipe as before. For OpenPI's PyTorch training alone.",
        memory="shared memory of the host: three batches a worker",
        numerics="bitwise",
        validated="debug_pi05 at 15a9616, torch 2.13 on CPU",
        until="OpenPI's loader gives tensors",
    ),
)

group(
    "openpi.device_batches",
    wrap("openpi.training.data_loader.DataLoaderImpl.__iter__", f"{HERE}.device_batches.batches"),
    depends_on=SERVED,
    about=About(
        why="OpenPI's script copies each field of a batch to the device by itself, from memory that is not pinned: the "
        "copy of 58 MB at batch 32 begins when the device has finished the step before, which then waits for it. A "
        "thread takes the next batch from the loader's workers, pins and copies it while a step runs. A loader without "
        "workers is left alone, and so are JAX's batches.",
        memory="a batch more on the device, and two pinned on the host",
        numerics="bitwise",
        validated=f"a small model of the same structure on CPU, where it does nothing; {_CARD}",
        until="OpenPI's script copies without waiting",
    ),
)

group(
    "openpi.fp32_optimizer_state",
    wrap("torch.optim.AdamW.__init__", f"{HERE}.fp32_optimizer_state.init", stack=True),
    wrap("torch.optim.adam.adam", f"{HERE}.fp32_optimizer_state.adam"),
    about=About(
        why="With parameters in bfloat16 AdamW's moments are bfloat16 too, whose eight bits hold no change of a "
        "hundredth: a second moment hardly decays, and small steps vanish before they reach the parameter. Moments are "
        "kept in float32 and the step is computed in float32; only its result is rounded. Training becomes another "
        "one, so the group is off. A checkpoint's moments come back rounded, as torch loads them.",
        memory="4 bytes more a parameter: 13 GB for PI0.5; and 1 GiB while it steps",
        numerics="changes training",
        validated=_VALIDATED,
        backward=False,
        until="OpenPI keeps them so",
    ),
)
