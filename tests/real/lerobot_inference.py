# SPDX-License-Identifier: Apache-2.0
"""Run by test_lerobot.py: the velocity that training computes is the one that drawing actions computes.

Training goes through both transformers at once, drawing through one after the other with a cache between them: two ways
of lerobot to the same numbers, of which the second uses Gemma's own forward.
"""

import torch
from lerobot.configs.types import FeatureType, PolicyFeature
from lerobot.policies.pi0.configuration_pi0 import PI0Config
from lerobot.policies.pi0.modeling_pi0 import PI0Policy
from lerobot.policies.pi05.configuration_pi05 import PI05Config
from lerobot.policies.pi05.modeling_pi05 import PI05Policy

BATCH, TOKENS, SIZE = 2, 12, 56


def main(config_class: type, policy_class: type) -> None:
    torch.manual_seed(0)
    config = config_class(
        device="cpu",
        image_resolution=(SIZE, SIZE),
        chunk_size=5,
        n_action_steps=5,
        tokenizer_max_length=TOKENS,
        input_features={
            "observation.images.base": PolicyFeature(type=FeatureType.VISUAL, shape=(3, SIZE, SIZE)),
            "observation.state": PolicyFeature(type=FeatureType.STATE, shape=(4,)),
        },
        output_features={"action": PolicyFeature(type=FeatureType.ACTION, shape=(4,))},
    )
    model = policy_class(config).model.eval()
    for name, parameter in model.named_parameters():
        if "dense" in name:  # gates that are closed at first would hide the rest
            torch.nn.init.normal_(parameter, std=0.2)
    images, tokens = [torch.rand(BATCH, 3, SIZE, SIZE)], torch.randint(4, 300, (BATCH, TOKENS))
    masks = torch.arange(TOKENS) < torch.tensor([[7], [TOKENS]])
    state = [torch.randn(BATCH, 32)] if policy_class is PI0Policy else []
    noise, time = torch.randn(BATCH, 5, 32), torch.tensor([0.3, 0.8])
    seen = [torch.ones(BATCH, dtype=torch.bool)]
    with torch.no_grad():
        # Where noise and actions are equal, the loss is the square of the velocity.
        trained = model(images, seen, tokens, masks, *state, noise, noise=noise, time=time).sqrt()
        drawn: list[torch.Tensor] = []
        step = model.denoise_step

        def denoise_step(*args: object, **kwargs: object) -> torch.Tensor:
            drawn.append(step(*args, **{**kwargs, "x_t": noise, "timestep": time}))
            return drawn[-1]

        model.denoise_step = denoise_step
        model.sample_actions(images, seen, tokens, masks, *state, noise=noise, num_steps=3)
    for velocity in drawn:
        torch.testing.assert_close(velocity.abs(), trained, rtol=1e-3, atol=1e-4)
    assert len(drawn) == 3
    assert trained.std() > 0
    print("same velocity", policy_class.__name__)


if __name__ == "__main__":
    main(PI05Config, PI05Policy)
    main(PI0Config, PI0Policy)
