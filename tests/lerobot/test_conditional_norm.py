# SPDX-License-Identifier: Apache-2.0
"""Gemma for lerobot 0.4: modulated where lerobot calls it, itself for everybody else."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.lerobot.stand_ins import Norm
from turbo_hydra.catalogs.models.lerobot import conditional_norm
from turbo_hydra.catalogs.models.lerobot.conditional_norm import ConditionalNorm, gated_residual
from turbo_hydra.compatibility import ImportContext


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("width", [None, 5])
def test_a_norm_is_what_lerobots_own_later_class_computes(dtype: torch.dtype, width: int | None) -> None:
    torch.manual_seed(0)
    theirs, ours = Norm(6, width).to(dtype), ConditionalNorm(6, 1e-6, width).to(dtype)
    ours.load_state_dict(theirs.state_dict())
    x, cond = torch.randn(2, 3, 6).to(dtype), torch.randn(2, 5).to(dtype) if width else None
    for found, expected in zip(ours(x, cond=cond), theirs(x, cond), strict=True):
        assert (found is None) is (expected is None)
        if found is not None and expected is not None:
            torch.testing.assert_close(found, expected)
    if width is None:
        assert torch.equal(ours(x), theirs(x)[0]), "without the name of a condition: the plain norm alone"


@pytest.mark.parametrize(
    ("width", "given", "found"),
    [
        (5, {}, "found none"),
        (5, {"cond": None}, "found none"),
        (5, {"cond": torch.ones(2, 4)}, "found one that is 4 wide"),
    ],
)
def test_a_missing_condition_is_told(width: int, given: dict[str, Any], found: str) -> None:
    with pytest.raises(ValueError, match=f"needs a condition that is 5 wide, {found}"):
        ConditionalNorm(6, 1e-6, width)(torch.ones(2, 3, 6), **given)


def test_gated_residual() -> None:
    x, y, gate = torch.ones(2), torch.full((2,), 3.0), torch.tensor([0.0, 2.0])
    assert gated_residual(x, y, gate) is not None
    assert torch.equal(gated_residual(x, y, gate), torch.tensor([1.0, 7.0]))  # type: ignore[arg-type]
    assert torch.equal(gated_residual(x, y, None), torch.tensor([4.0, 4.0]))  # type: ignore[arg-type]
    assert gated_residual(None, y, gate) is y
    assert gated_residual(x, None, gate) is x
    assert gated_residual(None, None, gate) is None


def test_the_module_that_lerobot_asks_says_yes_and_one_that_is_there_stays() -> None:
    context = ImportContext("transformers.models.siglip.check", None, None)
    namespace: dict[str, Any] = {}
    exec(conditional_norm.check_source(None, context), namespace)
    assert namespace["check_whether_transformers_replace_is_installed_correctly"]() is True
    assert conditional_norm.check_source("answer = 1", context) == "answer = 1"


class Attention(nn.Module):
    """Adds up what may be seen, keys and values alike, after a projection."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.q_proj = nn.Linear(width, width, bias=False)

    def forward(
        self,
        hidden_states: Tensor,
        position_embeddings: Any,
        attention_mask: Tensor,
        past_key_values: Any = None,
        **kwargs: Any,
    ) -> tuple[Tensor, None]:
        value = self.q_proj(hidden_states)[:, None]
        if past_key_values is not None:
            value, _ = past_key_values.update(value, value, 0, {})
        return ((attention_mask == 0).to(value.dtype) @ value)[:, 0], None


class Layer(nn.Module):
    def __init__(self, config: Any, layer_idx: int) -> None:
        super().__init__()
        self.self_attn = Attention(config.hidden_size)
        self.mlp = nn.Linear(config.hidden_size, config.hidden_size)
        self.input_layernorm = self.post_attention_layernorm = nn.Identity()


class Cache:
    def __init__(self, config: Any = None) -> None:
        self.held: list[Tensor] = []

    def __getitem__(self, layer: int) -> tuple[Tensor, Tensor, None]:
        return self.held[0], self.held[0], None

    def update(self, key: Tensor, value: Tensor, layer: int, settings: Any) -> tuple[Tensor, Tensor]:
        self.held = [torch.cat((*self.held, value), dim=2)]
        return self.held[0], self.held[0]


@pytest.fixture
def gemma(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A model of one layer whose constructors the group has changed; its own forward gives 'stock'."""
    modules: dict[str, dict[str, Any]] = {
        "transformers.cache_utils": {"DynamicCache": Cache},
        "transformers.modeling_outputs": {"BaseModelOutputWithPast": SimpleNamespace},
    }
    for name, content in modules.items():
        module = ModuleType(name)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)
    layer_init = conditional_norm.decoder_layer(Layer.__init__, None)
    forward = conditional_norm.model_forward(lambda self, *args, **kwargs: ("stock", args, kwargs), None)

    class Model(nn.Module):
        def __init__(self, config: Any) -> None:
            super().__init__()
            self.config = config
            layer = Layer.__new__(Layer)
            layer_init(layer, config, 0)
            self.layers = nn.ModuleList([layer])
            self.rotary_emb = lambda hidden, positions: None

    Model.__init__ = conditional_norm.model(Model.__init__, None)  # type: ignore[method-assign]
    Model.forward = forward
    return Model


def config(condition: int | None) -> SimpleNamespace:
    return SimpleNamespace(
        hidden_size=4, rms_norm_eps=1e-6, use_adarms=condition is not None, adarms_cond_dim=condition
    )


def call(model: Any, x: Tensor, mask: Tensor, **kwargs: Any) -> Any:
    positions = torch.arange(x.shape[1]).expand(x.shape[:2])
    return model(inputs_embeds=x, attention_mask=mask, position_ids=positions, **kwargs)


def test_the_expert_is_modulated_and_its_prefix_is_read_without_being_added_to(gemma: Any) -> None:
    torch.manual_seed(0)
    model = gemma(config(3))
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.5)
    x, prefix, condition = torch.randn(2, 2, 4), torch.randn(2, 1, 3, 4), torch.randn(2, 3)
    cache = Cache()
    cache.held = [prefix]
    output = call(model, x, torch.zeros(2, 1, 2, 5), past_key_values=cache, use_cache=False, adarms_cond=condition)
    assert torch.equal(cache.held[0], prefix)
    layer = model.layers[0]
    normed, gate = layer.input_layernorm(x, cond=condition)
    attended = torch.cat((prefix[:, 0], layer.self_attn.q_proj(normed)), dim=1).sum(1, keepdim=True)
    hidden = x + attended * gate
    normed, gate = layer.post_attention_layernorm(hidden, cond=condition)
    hidden = hidden + layer.mlp(normed) * gate
    torch.testing.assert_close(output.last_hidden_state, model.norm(hidden, cond=condition)[0])
    assert output.past_key_values is None


def test_the_prefix_is_kept_and_not_scaled(gemma: Any) -> None:
    model = gemma(config(None))
    x = torch.randn(2, 3, 4)
    output = call(model, x, torch.zeros(2, 1, 3, 3), use_cache=True, adarms_cond=None)
    assert output.past_key_values.held[0].shape == (2, 1, 3, 4)
    normed = model.layers[0].input_layernorm(x)
    assert torch.equal(output.past_key_values.held[0][:, 0], model.layers[0].self_attn.q_proj(normed))


def test_layers_in_bfloat16_get_it(gemma: Any) -> None:
    model = gemma(config(None)).to(torch.bfloat16)
    output = call(model, torch.randn(2, 3, 4), torch.zeros(2, 1, 3, 3), use_cache=False, adarms_cond=None)
    assert output.last_hidden_state.dtype == torch.bfloat16


def test_calls_of_others_are_the_models_own(gemma: Any) -> None:
    model, x = gemma(config(None)), torch.randn(2, 3, 4)
    assert call(model, x, torch.zeros(2, 1, 3, 3), labels=1)[0] == "stock"
    stock, args, kwargs = model(input_ids=7, adarms_cond=None)
    assert (stock, args[0], kwargs) == ("stock", 7, {"adarms_cond": None})
    assert call(model, x, torch.zeros(2, 3), adarms_cond=None)[0] == "stock", "a mask that is not lerobot's"


def test_images_are_not_divided_and_encoders_get_the_dtype_of_their_layers() -> None:
    tower = SimpleNamespace(
        vision_tower=lambda image: SimpleNamespace(last_hidden_state=image + 1), multi_modal_projector=lambda x: 2 * x
    )
    owner = SimpleNamespace(paligemma=SimpleNamespace(model=tower))
    assert conditional_norm.embed_image(lambda self, image: None, None)(owner, torch.ones(1)).item() == 4.0
    seen: list[torch.dtype] = []
    forward = conditional_norm.siglip_encoder(lambda self, x, mask, **kwargs: seen.append(x.dtype), None)
    attention = SimpleNamespace(q_proj=SimpleNamespace(weight=torch.ones(1, dtype=torch.bfloat16)))
    forward(SimpleNamespace(layers=[SimpleNamespace(self_attn=attention)]), torch.ones(1))
    forward(SimpleNamespace(layers=[]), torch.ones(1))
    assert seen == [torch.bfloat16, torch.float32]
