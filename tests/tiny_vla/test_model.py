# SPDX-License-Identifier: Apache-2.0
"""The policy has the structure it claims."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch

from tiny_vla.attention import MASKED, eager_attention, make_attention_mask
from tiny_vla.config import ModelConfig, StreamConfig
from tiny_vla.flow import embed_time, sample_time
from tiny_vla.layers import GeGLU, RMSNorm
from tiny_vla.model import TinyVLA
from tiny_vla.rotary import RotaryEmbedding, apply_rotary

SMALL = ModelConfig(
    image_size=12,
    vision_layers=1,
    vision_mlp_width=32,
    instruction_length=5,
    horizon=3,
    layers=2,
    head_size=8,
    prefix=StreamConfig(width=32, mlp_width=48),
    expert=StreamConfig(width=16, mlp_width=24),
)


def batch(config: ModelConfig, size: int = 3) -> dict[str, torch.Tensor]:
    present = torch.arange(config.instruction_length)[None] < torch.tensor([[2], [5], [3]])[:size]
    return {
        "images": torch.rand(size, config.cameras, 3, config.image_size, config.image_size) * 2 - 1,
        "tokens": torch.randint(2, config.vocabulary, (size, config.instruction_length)),
        "token_mask": present,
        "proprio": torch.randn(size, config.proprio_size),
        "actions": torch.randn(size, config.horizon, config.action_size),
    }


def lively(config: ModelConfig) -> TinyVLA:
    """A model whose adaptive norms are not at their zero start, where the expert's layers do nothing."""
    model = TinyVLA(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "modulation" in name:
                parameter.normal_(std=0.5)
    return model


def test_the_default_has_about_a_million_parameters() -> None:
    assert 1.0e6 < sum(parameter.numel() for parameter in TinyVLA(ModelConfig()).parameters()) < 1.4e6


def test_the_mask_lets_each_token_see_its_block_and_those_before() -> None:
    present = torch.tensor([[True, True, False, True, True]])
    mask = make_attention_mask(present, torch.tensor([False, False, False, True, False]))
    seen = (mask == 0)[0, 0].int().tolist()
    assert seen == [[1, 1, 0, 0, 0], [1, 1, 0, 0, 0], [0, 0, 0, 0, 0], [1, 1, 0, 1, 1], [1, 1, 0, 1, 1]]
    assert mask.min() == torch.tensor(MASKED)


def test_eager_attention_by_hand() -> None:
    query = torch.tensor([[[[1.0], [0.0]]]])
    key = torch.tensor([[[[0.0], [math.log(3.0)]]]])
    value = torch.tensor([[[[1.0], [5.0]]]])
    # Scores 0 and log 3: weights 1/4 and 3/4. The second query weighs both alike.
    expected = torch.tensor([[[4.0], [3.0]]])
    assert torch.allclose(eager_attention(query, key, value, None, 1.0), expected)
    # Two query heads share the key/value head.
    shared = eager_attention(query.expand(1, 2, 2, 1), key, value, None, 1.0)
    assert torch.allclose(shared, expected.expand(1, 2, 2))


def test_a_token_that_may_see_nothing_gets_the_mean() -> None:
    mask = torch.full((1, 1, 2, 2), MASKED)
    output = eager_attention(torch.randn(1, 1, 2, 4), torch.randn(1, 1, 2, 4), torch.eye(2)[None, None], mask, 1.0)
    assert torch.equal(output, torch.full((1, 2, 2), 0.5))


def test_rotated_products_depend_on_the_distance_only() -> None:
    rotary = RotaryEmbedding(8)
    query, key = torch.randn(1, 1, 1, 8), torch.randn(1, 1, 1, 8)
    products = []
    for place in (0, 7):
        cos_q, sin_q = rotary(query, torch.tensor([[place + 3]]))
        cos_k, sin_k = rotary(key, torch.tensor([[place]]))
        turned, _ = apply_rotary(query, query, cos_q, sin_q)
        products.append((turned * apply_rotary(key, key, cos_k, sin_k)[1]).sum())
    assert torch.allclose(products[0], products[1], atol=1e-5)


def test_position_0_is_not_turned() -> None:
    cos, sin = RotaryEmbedding(4)(torch.zeros(1), torch.zeros(1, 1, dtype=torch.int64))
    assert torch.equal(cos, torch.ones(1, 1, 4))
    assert torch.equal(sin, torch.zeros(1, 1, 4))


def test_rms_norm_by_hand() -> None:
    norm = RMSNorm(2, eps=0.0)
    output, gate = norm(torch.tensor([[[3.0, 4.0]]]))
    assert gate is None
    assert torch.allclose(output, torch.tensor([[[3.0, 4.0]]]) / math.sqrt(12.5))


def test_an_adaptive_norm_scales_shifts_and_gates() -> None:
    norm = RMSNorm(2, condition_width=1, eps=0.0)
    assert norm.modulation is not None
    with torch.no_grad():
        norm.modulation.weight.copy_(torch.tensor([[1.0], [0.0], [0.5], [0.5], [2.0], [3.0]]))
    output, gate = norm(torch.tensor([[[1.0, -1.0]]]), torch.tensor([[1.0]]))
    assert torch.allclose(output, torch.tensor([[[2.5, -0.5]]]))
    assert gate is not None
    assert torch.equal(gate, torch.tensor([[[2.0, 3.0]]]))
    with pytest.raises(ValueError, match="condition"):
        norm(torch.ones(1, 1, 2))


def test_geglu_by_hand() -> None:
    mlp = GeGLU(1, 1)
    with torch.no_grad():
        for projection, weight in ((mlp.gate_proj, 1.0), (mlp.up_proj, 2.0), (mlp.down_proj, 3.0)):
            projection.weight.fill_(weight)
    gelu = 0.5 * (1 + math.tanh(math.sqrt(2 / math.pi) * (1 + 0.044715)))
    assert mlp(torch.ones(1, 1, 1)).item() == pytest.approx(6 * gelu, rel=1e-6)


def test_times_lie_between_0_and_1_and_mostly_near_1() -> None:
    time = sample_time(4000, torch.device("cpu"))
    assert 0 < time.min() < time.max() <= 1
    assert time.mean().item() == pytest.approx(0.6, abs=0.02)  # Beta(1.5, 1) has mean 0.6


def test_times_that_differ_are_embedded_differently() -> None:
    embedded = embed_time(torch.linspace(0, 1, 50), 16)
    assert embedded.shape == (50, 16)
    distance = torch.cdist(embedded, embedded) + torch.eye(50) * 9
    assert distance.min() > 0.1


def test_padding_of_the_instruction_changes_nothing() -> None:
    model, data = lively(SMALL).eval(), batch(SMALL)
    noise = torch.randn_like(data.pop("actions"))
    before = model.sample(**data, noise=noise, steps=2)
    data["tokens"] = torch.where(data["token_mask"], data["tokens"], 1)
    assert torch.equal(model.sample(**data, noise=noise, steps=2), before)
    data["tokens"] = torch.where(data["token_mask"], 1, data["tokens"])
    assert not torch.equal(model.sample(**data, noise=noise, steps=2), before)


@pytest.mark.parametrize("name", ["images", "proprio"])
def test_what_is_seen_and_felt_reaches_the_actions(name: str) -> None:
    model, data = lively(SMALL).eval(), batch(SMALL)
    noise = torch.randn_like(data.pop("actions"))
    before = model.sample(**data, noise=noise, steps=2)
    data[name] = data[name] + 0.5
    assert not torch.allclose(model.sample(**data, noise=noise, steps=2), before)


def test_checkpointing_changes_no_bit() -> None:
    model, data = lively(SMALL), batch(SMALL)
    kept = TinyVLA(dataclasses.replace(SMALL, gradient_checkpointing=False))
    kept.load_state_dict(model.state_dict())
    for one in (model, kept):
        torch.manual_seed(1)
        one(**data).mean().backward()
    for (name, parameter), other in zip(model.named_parameters(), kept.parameters(), strict=True):
        assert (parameter.grad is None) == (other.grad is None), name
        if parameter.grad is not None and other.grad is not None:
            assert torch.equal(parameter.grad, other.grad), name


def test_only_the_last_layers_prefix_half_gets_no_gradient() -> None:
    model = lively(SMALL)
    model(**batch(SMALL)).mean().backward()
    without = {name for name, parameter in model.named_parameters() if parameter.grad is None}
    last = "transformer.layers.1.prefix."
    assert without == {
        last + name
        for name in (
            "o_proj.weight",
            "post_norm.weight",
            "mlp.gate_proj.weight",
            "mlp.up_proj.weight",
            "mlp.down_proj.weight",
        )
    }


def test_sampling_follows_a_known_velocity(monkeypatch: pytest.MonkeyPatch) -> None:
    model, data = TinyVLA(SMALL).eval(), batch(SMALL)
    goal = data.pop("actions")
    noise = torch.randn_like(goal)
    monkeypatch.setattr(model, "velocity", lambda prefix, present, noisy, time: noise - goal)
    assert torch.allclose(model.sample(**data, noise=noise, steps=10), goal, atol=1e-5)
