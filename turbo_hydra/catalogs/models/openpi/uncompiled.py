# SPDX-License-Identifier: Apache-2.0
"""Groups for parts of the model that are not compiled: kernels that do what `torch.compile` makes of these parts."""

from __future__ import annotations

from turbo_hydra import About, group, wrap

_HERE = "turbo_hydra.catalogs.models.openpi"
_SHARED = "turbo_hydra.catalogs.shared"
_GEMMA = "transformers.models.gemma.modeling_gemma"
_SIGLIP = "transformers.models.siglip.modeling_siglip"
_SERVED = ("openpi.transformers_replace",)
_VALIDATED_SMALL = "torch 2.13 on CPU, float32 and bfloat16, a small model of the same structure"

group(
    "openpi.geglu",
    wrap(f"{_GEMMA}.GemmaMLP.forward", f"{_SHARED}.gated_mlp.forward"),
    depends_on=_SERVED,
    about=About(
        why="GELU and product are two passes over [batch, length, 16384], and keep three tensors of that size; the "
        "kernel is one pass and keeps two. A compiled joint forward fuses them by itself: off unless it is not "
        "compiled.",
        memory="less where nothing is compiled",
        numerics="close",
        validated=_VALIDATED_SMALL,
    ),
)

group(
    "openpi.siglip_gelu",
    wrap(f"{_SIGLIP}.SiglipMLP.forward", f"{_SHARED}.gelu_mlp.forward"),
    depends_on=_SERVED,
    about=About(
        why="The bias of SigLIP's first layer, its gradient and GELU are separate passes; the kernel is one forward "
        "and one backward. A compiled image encoder fuses them by itself: off unless it is not compiled.",
        memory="less where nothing is compiled",
        numerics="close",
        validated=_VALIDATED_SMALL,
    ),
)

group(
    "openpi.ada_rms_norm",
    wrap(f"{_GEMMA}.GemmaRMSNorm.forward", f"{_HERE}.ada_rms_norm.forward"),
    depends_on=_SERVED,
    about=About(
        why="The norm squares, averages, scales, shifts and casts in separate passes in float32; the kernel is one. A "
        "compiled joint forward fuses them by itself: off unless it is not compiled.",
        memory="less where nothing is compiled",
        numerics="close",
        validated=_VALIDATED_SMALL,
    ),
)

group(
    "openpi.softmax",
    wrap(f"{_GEMMA}.eager_attention_forward", f"{_SHARED}.eager_attention.attention", stack=True),
    depends_on=_SERVED,
    about=About(
        why="Scores of [batch, 8, length, length] are scaled, masked, cast to float32, normalised and cast back in "
        "separate passes, and keys and values are repeated for eight heads; the kernel is one pass and repeats "
        "nothing. A compiled joint forward fuses them by itself: off unless it is not compiled.",
        memory="less where nothing is compiled: no scores in float32",
        numerics="close",
        validated=_VALIDATED_SMALL,
    ),
)
