# SPDX-License-Identifier: Apache-2.0
"""PI0 and PI0.5 in sizes that a CPU can train; lerobot has none below 4 billion parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from turbo_hydra.catalogs.models.lerobot.options import Tiny

Init = Callable[..., None]

# Beside their widths: MLPs are twice as wide, as they are there about.
_MLP = 2
_VISION_LAYERS, _VISION_HEADS = 2, 4


def get_gemma_config(original: Callable[[str], Any], options: Tiny) -> Callable[[str], Any]:
    """Factory for `get_gemma_config`: the sizes of language model and action expert, whose heads stay 8 and 1."""

    def get_gemma_config(variant: str) -> Any:
        config = original(variant)
        config.width = options.width if variant == "gemma_2b" else options.expert_width
        config.mlp_dim = _MLP * config.width
        config.depth, config.head_dim = options.depth, options.head_dim
        return config

    return get_gemma_config


def paligemma(original: Init, options: Tiny) -> Init:
    """Factory for `PaliGemmaForConditionalGeneration.__init__`: vision and vocabulary, which lerobot has as numbers."""

    def __init__(self: Any, config: Any) -> None:
        vision, text = config.vision_config, config.text_config
        vision.hidden_size, vision.intermediate_size = options.vision_width, _MLP * options.vision_width
        vision.num_hidden_layers, vision.num_attention_heads = _VISION_LAYERS, _VISION_HEADS
        # The projection of image features ends in the language model.
        vision.projection_dim = config.projection_dim = text.hidden_size
        text.vocab_size = options.vocabulary
        config.image_token_index = config.image_token_id = options.vocabulary - 1
        original(self, config)

    return __init__


def expert(original: Init, options: Tiny) -> Init:
    """Factory for `GemmaForCausalLM.__init__`: the action expert's vocabulary, which nothing reads."""

    def __init__(self: Any, config: Any) -> None:
        config.vocab_size = options.vocabulary
        original(self, config)

    return __init__
