# SPDX-License-Identifier: Apache-2.0
"""Groups for the models of Hugging Face's transformers, by families: Gemma, Llama, Mistral, Qwen, SigLIP, PaliGemma.

Each group is declared once and made for every family that it serves. All targets are `late`: a family's groups are put
in place when the script imports its module, and no family is imported for them.
"""

from __future__ import annotations

from turbo_hydra import About, group, wrap
from turbo_hydra.catalogs.shared.options import GatedMlp
from turbo_hydra.catalogs.transformers.families import DECODERS, ENCODERS
from turbo_hydra.catalogs.transformers.options import Attention, Loss

_HERE = "turbo_hydra.catalogs.transformers"
_SHARED = "turbo_hydra.catalogs.shared"
_VALIDATED = (
    "transformers 4.53.2 and 5.24.0, torch 2.13 on CPU, float32 and bfloat16, random models of two layers, eager and "
    "compiled; the kernels in Triton's interpreter"
)

_RMS_NORM = About(
    why="The norm casts, squares, averages, scales and casts back in separate passes in float32, twice a layer; the "
    "kernel is one pass and keeps its input alone. On a CPU nothing changes.",
    memory="less: no float32 copies of the activations",
    numerics="close",
    validated=_VALIDATED,
)
_MLP = About(
    why="Activation and product are two passes over [batch, length, intermediate size] and keep three tensors of that "
    "size; the kernel is one pass and keeps two. On a CPU nothing changes.",
    memory="less: one tensor of [batch, length, intermediate size] a layer",
    numerics="close",
    validated=_VALIDATED,
)
_ROTARY = About(
    why="Queries and keys are each halved, negated, joined, multiplied and added in separate passes; the kernel turns "
    "both in one launch. On a CPU nothing changes.",
    memory="none",
    numerics="close",
    validated=_VALIDATED,
)
_ROTARY_CACHE = About(
    why="Cosines and sines are computed once for a tensor of positions. transformers' own models compute them once a "
    "forward and gain nothing: off, for programs that call the layers one by one.",
    memory="one pair of cosines and sines stays allocated",
    numerics="bitwise",
    validated=_VALIDATED,
)
_EAGER_ATTENTION = About(
    why="The eager attention scales, masks, casts, normalises and casts back [batch, heads, length, length] scores in "
    "separate passes, and repeats keys and values; the kernel is one pass and repeats nothing. Models use it only "
    "where they are made with attn_implementation='eager'. On a CPU nothing changes.",
    memory="less: no scores in float32",
    numerics="close",
    validated=_VALIDATED,
)
_LOSS = About(
    why="In training all logits [batch, length, vocabulary] are made, copied to float32, normalised, differentiated. "
    "Here they are made in parts, each of which becomes loss and gradients before the next is made. The output of a "
    "model in training has no logits: a script that reads them there (an accuracy, a loss of its own) needs the group "
    "off. Another loss function, an adapter or hooks at the head, or logits asked for leave it as it is.",
    memory="less: no tensor of [tokens, vocabulary]; the gradient of the head's weight lives from the forward on",
    numerics="close",
    validated=_VALIDATED,
    until="transformers computes it so",
)
_GELU_MLP = About(
    why="The bias of the first layer, its gradient and GELU are separate passes; the kernel is one forward and one "
    "backward. On a CPU nothing changes.",
    memory="less: one tensor of [batch, patches, intermediate size] a layer",
    numerics="close",
    validated=_VALIDATED,
)

group(
    "transformers.attention",
    wrap("transformers.modeling_utils.PreTrainedModel.__init__", f"{_HERE}.attention.init", late=True),
    options=Attention,
    about=About(
        why="Which attention a model uses is an argument of the script. Here models that would use one implementation "
        "get another, where their class says that it supports it.",
        memory="as the implementation has it; eager keeps all scores",
        numerics="close",
        validated=_VALIDATED,
    ),
)

for _family in DECODERS:
    _classes = f"{_family.module}.{_family.prefix}"
    group(
        f"transformers.{_family.name}_rms_norm",
        wrap(f"{_classes}RMSNorm.forward", f"{_SHARED}.rms_norm.{_family.norm}", late=True),
        about=_RMS_NORM,
    )
    group(
        f"transformers.{_family.name}_mlp",
        wrap(f"{_classes}MLP.forward", f"{_SHARED}.gated_mlp.forward", late=True),
        options=GatedMlp,
        about=_MLP,
    )
    group(
        f"transformers.{_family.name}_rotary",
        wrap(f"{_family.module}.apply_rotary_pos_emb", f"{_SHARED}.rotary.apply", late=True),
        about=_ROTARY,
    )
    group(
        f"transformers.{_family.name}_loss",
        wrap(f"{_classes}ForCausalLM.forward", f"{_HERE}.loss.causal_lm", late=True),
        options=Loss,
        about=_LOSS,
    )
    if _family.one_rotation:
        group(
            f"transformers.{_family.name}_rotary_cache",
            wrap(f"{_classes}RotaryEmbedding.forward", f"{_SHARED}.rotary_cache.forward", late=True),
            about=_ROTARY_CACHE,
        )
    if _family.plain_attention:
        group(
            f"transformers.{_family.name}_eager_attention",
            wrap(f"{_family.module}.eager_attention_forward", f"{_SHARED}.eager_attention.attention", late=True),
            about=_EAGER_ATTENTION,
        )

for _encoder in ENCODERS:
    group(
        f"transformers.{_encoder.name}_mlp",
        wrap(f"{_encoder.module}.{_encoder.prefix}MLP.forward", f"{_SHARED}.gelu_mlp.forward", late=True),
        about=_GELU_MLP,
    )
    group(
        f"transformers.{_encoder.name}_eager_attention",
        wrap(f"{_encoder.module}.eager_attention_forward", f"{_SHARED}.eager_attention.attention", late=True),
        about=_EAGER_ATTENTION,
    )

group(
    "transformers.paligemma_loss",
    wrap(
        "transformers.models.paligemma.modeling_paligemma.PaliGemmaForConditionalGeneration.forward",
        f"{_HERE}.loss.paligemma",
        late=True,
    ),
    options=Loss,
    about=_LOSS,
)
