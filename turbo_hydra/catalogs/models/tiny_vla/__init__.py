# SPDX-License-Identifier: Apache-2.0
"""Groups for the example `tiny_vla`, a vision-language-action policy in miniature with the structure of PI0.5."""

from __future__ import annotations

from turbo_hydra import About, group, wrap
from turbo_hydra.catalogs.models.tiny_vla.options import CheckpointOff, CompileLayer, FusedAttention
from turbo_hydra.catalogs.shared.options import DdpState

_HERE = "turbo_hydra.catalogs.models.tiny_vla"
_VALIDATED = "torch 2.13 on CPU, float32; batch 16 and 8, length 151; one and two ranks"

group(
    "tiny_vla.checkpoint_off",
    wrap("tiny_vla.layers.checkpointed", f"{_HERE}.checkpoint_off.checkpointed"),
    options=CheckpointOff,
    about=About(
        why="Every layer is checkpointed, so the backward pass computes the forward pass a second time, though the "
        "activations would fit. They are kept instead; layers above a size can be left checkpointed.",
        memory="keeps all activations: 0.10 GB more at batch 16, 0.02 GB more together with the other groups",
        numerics="bitwise",
        validated=_VALIDATED,
    ),
)

group(
    "tiny_vla.fused_attention",
    wrap("tiny_vla.attention.eager_attention", f"{_HERE}.fused_attention.attention"),
    options=FusedAttention,
    about=About(
        why="The eager attention writes and reads the scores [batch, heads, length, length] several times and copies "
        "the one key/value head for each query head. torch's fused attention keeps the scores in the cache. A token "
        "that may attend to nothing gets the mean of the values, as before; no gradient goes through its scores.",
        memory="the scores are never stored: 0.04 GB less at batch 16, one layer at a time",
        numerics="close",
        validated=_VALIDATED,
    ),
)

group(
    "tiny_vla.rope_once",
    wrap("tiny_vla.rotary.RotaryEmbedding.forward", f"{_HERE}.rope_once.forward"),
    about=About(
        why="Every layer computes the cosines and sines of the same positions. They are computed once for a tensor of "
        "positions and given again while that tensor is unchanged.",
        memory="one pair of cosines and sines stays allocated",
        numerics="bitwise",
        validated=_VALIDATED,
    ),
)

group(
    "tiny_vla.last_prefix",
    wrap("tiny_vla.joint.JointTransformer.forward", f"{_HERE}.last_prefix.transformer_forward"),
    wrap("tiny_vla.joint.JointLayer.forward", f"{_HERE}.last_prefix.layer_forward", stack=True),
    about=About(
        why="Only the expert's tokens leave the last layer, but all of the prefix's tokens go through its attention, "
        "output projection and MLP. The last layer is computed for the expert's tokens alone. The prefix's parameters "
        "there get the gradients they got before: none, and zeros for its queries.",
        memory="less",
        numerics="close",
        validated=_VALIDATED,
    ),
)

group(
    "tiny_vla.ddp_state",
    wrap(
        "torch.nn.parallel.distributed.DistributedDataParallel.__init__", "turbo_hydra.catalogs.shared.ddp_state.init"
    ),
    options=DdpState,
    about=About(
        why="With several ranks the graph is searched for unused parameters in every step (the last layer's prefix "
        "half has no gradient), gradients are copied into the buckets and constant buffers are sent. The graph never "
        "changes: it is searched once, gradients live in the buckets, buffers stay. No gain was seen on two "
        "ranks of a CPU; one rank is not touched by it.",
        memory="less: one copy of the gradients instead of two",
        numerics="close",
        validated=_VALIDATED,
    ),
)

group(
    "tiny_vla.compile_layer",
    wrap("tiny_vla.joint.JointLayer.forward", f"{_HERE}.compile_layer.joint", stack=True),
    wrap("tiny_vla.vision.VisionLayer.forward", f"{_HERE}.compile_layer.vision"),
    options=CompileLayer,
    compatibility_check=f"{_HERE}.compile_layer.check",
    about=About(
        why="Norms, rotary embedding, GeGLU and residuals are separate passes over the activations; torch.compile "
        "makes few of them. Compiling takes 20 to 40 s on two cores, more than a short run on a CPU gives back: for "
        "long runs and for GPUs.",
        memory="less activations are kept",
        numerics="close",
        validated=_VALIDATED,
        compiles=True,
    ),
)
