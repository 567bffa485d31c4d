# SPDX-License-Identifier: Apache-2.0
"""Groups for parts of the model that are not compiled: kernels that do what `torch.compile` makes of these parts."""

from __future__ import annotations

from turbo_hydra import About, group, wrap
from turbo_hydra.catalogs.models.openpi.names import GEMMA, HERE, SERVED, SHARED, SMALL

_SIGLIP = "transformers.models.siglip.modeling_siglip"

group(
    "openpi.geglu",
    wrap(f"{GEMMA}.GemmaMLP.forward", f"{SHARED}.gated_mlp.forward"),
    depends_on=SERVED,
    about=About(
        why="GELU and product are two passes over [batch, length, 16384], and keep three tensors of that size; the "
        "kernel is one pass and keeps two. A compiled joint forward fuses them by itself: off unless it is not "
        "compiled.",
        memory="less where nothing is compiled",
        numerics="close",
        validated=SMALL,
    ),
)

group(
    "openpi.siglip_gelu",
    wrap(f"{_SIGLIP}.SiglipMLP.forward", f"{SHARED}.gelu_mlp.forward"),
    depends_on=SERVED,
    about=About(
        why="The bias of SigLIP's first layer, its gradient and GELU are separate passes; the kernel is one forward "
        "and one backward. A compiled image encoder fuses them by itself: off unless it is not compiled.",
        memory="less where nothing is compiled",
        numerics="close",
        validated=SMALL,
    ),
)

group(
    "openpi.ada_rms_norm",
    wrap(f"{GEMMA}.GemmaRMSNorm.forward", f"{HERE}.ada_rms_norm.forward"),
    depends_on=SERVED,
    about=About(
        why="The norm squares, averages, scales, shifts and casts in separate passes in float32; the kernel is one. A "
        "compiled joint forward fuses them by itself: off unless it is not compiled.",
        memory="less where nothing is compiled",
        numerics="close",
        validated=SMALL,
    ),
)

group(
    "openpi.softmax",
    wrap(f"{GEMMA}.eager_attention_forward", f"{SHARED}.eager_attention.attention", stack=True),
    depends_on=SERVED,
    about=About(
        why="Scores of [batch, 8, length, length] are scaled, masked, cast to float32, normalised and cast back in "
        "separate passes, and keys and values are repeated for eight heads; the kernel is one pass and repeats "
        "nothing. A compiled joint forward fuses them by itself: off unless it is not compiled.",
        memory="less where nothing is compiled: no scores in float32",
        numerics="close",
        validated=SMALL,
    ),
)
