# SPDX-License-Identifier: Apache-2.0
"""Groups without which lerobot does not run where it is used here, and one that makes its models small."""

from __future__ import annotations

from turbo_hydra import About, group, wrap
from turbo_hydra.catalogs.models.lerobot.options import Tiny
from turbo_hydra.compatibility import before_import, import_alias, replace_import

_HERE = "turbo_hydra.catalogs.models.lerobot"
_SHARED = "turbo_hydra.catalogs.shared"
_SOURCE = f"{_SHARED}.type_parameters.source"
_GEMMA = "transformers.models.gemma.modeling_gemma"
_PALIGEMMA = "transformers.models.paligemma.modeling_paligemma"
_PI0 = "lerobot.policies.pi0.modeling_pi0"
_PI05 = "lerobot.policies.pi05.modeling_pi05"
_SIGLIP = "transformers.models.siglip.modeling_siglip"

group(
    "lerobot.compat_python311",
    replace_import("lerobot.datasets.aggregate", source=_SOURCE),
    replace_import("lerobot.datasets.streaming_dataset", source=_SOURCE),
    replace_import("lerobot.motors.motors_bus", source=_SOURCE),
    replace_import("lerobot.processor.pipeline", source=_SOURCE),
    replace_import("lerobot.utils.io_utils", source=_SOURCE),
    about=About(
        purpose="compatibility",
        why="Five files of lerobot 0.6 have type parameters in brackets (PEP 695), which Python reads from 3.12 on; "
        "all else in it runs on 3.11. They are served with type variables in their place, line for line, and as they "
        "are on newer Pythons. lerobot must be installed with pip's --ignore-requires-python.",
        numerics="bitwise",
        validated="lerobot 0.6.1 on Python 3.11",
        until="Python 3.11 is no longer in use",
    ),
)

group(
    "lerobot.compat_torchvision",
    before_import("torchvision", f"{_SHARED}.torchvision_schemas.declare"),
    about=About(
        purpose="compatibility",
        why="lerobot and transformers import torchvision, whose wheel is made for CUDA: beside a torch without it the "
        "import ends in 'operator torchvision::nms does not exist'. The two operators are declared where the compiled "
        "part does not load; calling them is an error, and neither library does while it trains.",
        numerics="bitwise",
        validated="torchvision 0.28.0 beside torch 2.13 for CPUs",
        until="torchvision imports without its compiled part",
    ),
)

group(
    "lerobot.transformers_names",
    replace_import("transformers.models.siglip.check", source=f"{_HERE}.conditional_norm.check_source"),
    import_alias(_GEMMA, f"{_HERE}.conditional_norm.gated_residual", "_gated_residual"),
    about=About(
        purpose="compatibility",
        why="lerobot 0.4 asks the module transformers.models.siglip.check whether transformers has been changed for "
        "it, and takes the gated residual from modeling_gemma. No release of transformers has either: the models of "
        "lerobot 0.4 refuse to be made. Both are there for this run; the installed package stays as it is.",
        numerics="bitwise",
        validated="lerobot 0.4.4, transformers 4.57.6, torch 2.13 on CPU",
        until="nobody uses lerobot 0.4: newer releases bring their own classes",
    ),
)

group(
    "lerobot.conditional_norm",
    wrap(f"{_GEMMA}.GemmaDecoderLayer.__init__", f"{_HERE}.conditional_norm.decoder_layer"),
    wrap(f"{_GEMMA}.GemmaModel.__init__", f"{_HERE}.conditional_norm.model"),
    wrap(f"{_GEMMA}.GemmaModel.forward", f"{_HERE}.conditional_norm.model_forward"),
    wrap(f"{_SIGLIP}.SiglipEncoder.forward", f"{_HERE}.conditional_norm.siglip_encoder"),
    wrap(
        "lerobot.policies.pi0.modeling_pi0.PaliGemmaWithExpertModel.embed_image",
        f"{_HERE}.conditional_norm.embed_image",
    ),
    wrap(
        "lerobot.policies.pi05.modeling_pi05.PaliGemmaWithExpertModel.embed_image",
        f"{_HERE}.conditional_norm.embed_image",
    ),
    depends_on=("lerobot.transformers_names",),
    about=About(
        purpose="compatibility",
        why="PI0 and PI0.5 of lerobot 0.4 call Gemma's norms with a condition and read a gate from them, read a cache "
        "without adding to it, and scale embeddings by themselves: they need files copied over an installed "
        "transformers. Here Gemma's norms take a condition, and calls with one compute what those files compute; all "
        "other Gemmas in the process compute what they did.",
        numerics="close",
        validated="lerobot 0.4.4, transformers 4.57.6, torch 2.13 on CPU, float32 and bfloat16",
        until="nobody uses lerobot 0.4: newer releases bring their own classes",
    ),
)

group(
    "lerobot.tiny",
    wrap(f"{_PI0}.get_gemma_config", f"{_HERE}.tiny.get_gemma_config"),
    wrap(f"{_PI05}.get_gemma_config", f"{_HERE}.tiny.get_gemma_config"),
    wrap(f"{_PALIGEMMA}.PaliGemmaForConditionalGeneration.__init__", f"{_HERE}.tiny.paligemma"),
    wrap(f"{_GEMMA}.GemmaForCausalLM.__init__", f"{_HERE}.tiny.expert"),
    options=Tiny,
    about=About(
        purpose="compatibility",
        why="lerobot's PI0 and PI0.5 have two sizes, of which the smaller has billions of parameters, and sizes of the "
        "image encoder and the vocabulary are numbers in its code. The group makes them another, tiny model, for tests "
        "and for sweeps on a CPU; it is off unless asked for.",
        memory="less: about a million parameters instead of four billion",
        numerics="changes training",
        validated="lerobot 0.6.1 and 0.4.4, torch 2.13 on CPU",
        until="lerobot has a configuration for tests",
    ),
)
