# SPDX-License-Identifier: Apache-2.0
"""Run by test_opentau.py: opentau's PI0.5 in miniature, which changes transformers as soon as opentau is imported."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import torch
from opentau.policies.pi05 import modeling_pi05
from opentau.policies.pi05.configuration_pi05 import PI05Config
from opentau.policies.pi05.paligemma_with_expert import PaliGemmaWithExpertConfig

BATCH, TOKENS, DISCRETE, WIDTH, EXPERT = 2, 12, 4, 64, 32


def small(**settings: object) -> PaliGemmaWithExpertConfig:
    """Shrink the sizes that are numbers in opentau's code."""
    config = PaliGemmaWithExpertConfig(**settings)
    text, vision = config.paligemma_config.text_config, config.paligemma_config.vision_config
    text.hidden_size, text.intermediate_size, text.num_hidden_layers, text.head_dim = WIDTH, 2 * WIDTH, 2, 16
    text.vocab_size = config.gemma_expert_config.vocab_size = 512
    vision.hidden_size, vision.intermediate_size, vision.num_hidden_layers, vision.num_attention_heads = 32, 64, 2, 4
    vision.projection_dim, vision.image_size = WIDTH, 56
    expert = config.gemma_expert_config
    expert.hidden_size, expert.intermediate_size, expert.num_hidden_layers, expert.head_dim = EXPERT, 2 * EXPERT, 2, 16
    expert.adarms_cond_dim = EXPERT
    return config


def main() -> list[float]:
    torch.manual_seed(0)
    modeling_pi05.PaliGemmaWithExpertConfig = small
    modeling_pi05.ensure_loc_tokens = lambda tokenizer: tokenizer
    tokenizer = SimpleNamespace(encode=lambda text, add_special_tokens: [4, 5, 6])
    settings = {"chunk_size": 5, "n_action_steps": 5, "proj_width": EXPERT, "dropout": 0.0, "prompt_max_length": TOKENS}
    config = PI05Config(**settings, discrete_action_max_length=DISCRETE, resize_imgs_with_padding=(56, 56))
    model = modeling_pi05.PI05FlowMatching(config, discrete_action_vocab_size=32, language_tokenizer=tokenizer)
    model.train()
    optimizer = torch.optim.AdamW([item for item in model.parameters() if item.requires_grad], lr=3e-3)
    batch = {
        "images": [torch.rand(BATCH, 3, 56, 56)],
        "img_masks": [torch.ones(BATCH, dtype=torch.bool)],
        "lang_tokens": torch.randint(4, 500, (BATCH, TOKENS)),
        "lang_masks": torch.ones(BATCH, TOKENS, dtype=torch.bool),
        "actions": torch.randn(BATCH, 5, 32),
        "discrete_actions": torch.randint(1, 32, (BATCH, DISCRETE)),
        "discrete_action_masks": torch.ones(BATCH, DISCRETE, dtype=torch.bool),
        "noise": torch.randn(BATCH, 5, 32),
        "time": torch.full((BATCH,), 0.5),
    }
    losses = []
    for _ in range(15):
        with torch.autocast("cpu", torch.bfloat16):
            found = model(**batch)
            loss = found["MSE"] + found["CE"]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(main()), encoding="utf-8")
