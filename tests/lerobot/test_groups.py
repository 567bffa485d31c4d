# SPDX-License-Identifier: Apache-2.0
"""Each replacement computes what stand-ins of lerobot's modules compute, forward and backward."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.lerobot.stand_ins import Heads, Mlp, Norm, eager_attention
from turbo_hydra.catalogs.models.lerobot import ada_rms_norm, attention, checkpoint, geglu, tiny
from turbo_hydra.catalogs.models.lerobot.options import Checkpoint, Tiny

TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 3e-2}
# What lerobot masks with.
HIDDEN = -2.3819763e38


def gradients(function: Callable[..., Tensor], module: nn.Module | None, *inputs: Tensor) -> list[Tensor]:
    """The result, and the gradients of a weighted sum of it for inputs and parameters."""
    leaves = [item.detach().requires_grad_() for item in inputs]
    result = function(*leaves)
    weights = torch.linspace(-1, 1, result.numel()).view(result.shape)
    leaves += list(module.parameters()) if module is not None else []
    return [result.detach(), *torch.autograd.grad((result.float() * weights).sum(), leaves)]


def same(found: list[Tensor], expected: list[Tensor], tolerance: float) -> None:
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == other.dtype
        size = other.float().abs().max().item() or 1.0
        assert (one.float() - other.float()).abs().max().item() <= tolerance * size


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("conditional", [False, True])
def test_the_norm(dtype: torch.dtype, conditional: bool) -> None:
    torch.manual_seed(0)
    norm = Norm(12, 5 if conditional else None).to(dtype)
    x, cond = torch.randn(2, 7, 12).to(dtype), torch.randn(2, 5).to(dtype)
    replaced = ada_rms_norm.forward(Norm.forward, None)

    def both(call: Callable[..., Any]) -> Callable[..., Tensor]:
        def whole(x: Tensor, cond: Tensor) -> Tensor:
            normed, gate = call(norm, x, cond if conditional else None)
            assert (gate is not None) is conditional
            return torch.cat([normed, *([] if gate is None else [gate.expand_as(normed)])]) + 0 * cond.sum().to(x.dtype)

        return whole

    same(gradients(both(replaced), norm, x, cond), gradients(both(Norm.forward), norm, x, cond), TOLERANCE[dtype])


def test_a_norm_without_weight_and_condition_and_double_precision_are_the_originals() -> None:
    asked: list[Any] = []
    replaced = ada_rms_norm.forward(lambda self, x, cond=None: asked.append(cond), None)  # type: ignore[arg-type, return-value]
    replaced(Norm(4, 3), torch.randn(2, 3, 4), None)
    replaced(Norm(4), torch.randn(2, 3, 4).double(), None)
    replaced(Norm(4, 3), torch.randn(2, 4), torch.randn(2, 3))
    assert len(asked) == 3


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_the_gate_bit_by_bit(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    mlp = Mlp(6, 10).to(dtype)
    x = torch.randn(2, 3, 6).to(dtype)
    replaced = geglu.forward(Mlp.forward, None)
    same(gradients(lambda x: replaced(mlp, x), mlp, x), gradients(mlp.forward, mlp, x), 0.0)


def test_another_activation_is_the_originals() -> None:
    mlp = Mlp(6, 10)
    mlp.act_fn = nn.ReLU()
    x = torch.randn(2, 3, 6)
    assert torch.equal(geglu.forward(Mlp.forward, None)(mlp, x), mlp(x))


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("heads", [(8, 1), (4, 2), (3, 3)])
@pytest.mark.parametrize("masked", ["nothing", "some", "whole rows"])
def test_attention(dtype: torch.dtype, heads: tuple[int, int], masked: str) -> None:
    torch.manual_seed(0)
    batch, length, width = 2, 9, 8
    query = torch.randn(batch, heads[0], length, width).to(dtype)
    key, value = (torch.randn(batch, heads[1], length, width).to(dtype) for _ in range(2))
    seen = torch.rand(batch, 1, length, length) < 0.7
    seen[..., 0] = True
    if masked == "whole rows":
        seen[0, :, 4:6] = False
    mask = None if masked == "nothing" else torch.where(seen, 0.0, HIDDEN)
    module = Heads(heads[0] // heads[1])
    replaced = attention.attention(eager_attention, None)
    # Rows that see nothing are the prompt's padding, which no loss depends on: their values are compared, and no
    # gradient through their scores.
    blind = ~seen.any(-1).transpose(1, 2).unsqueeze(-1) if mask is not None else torch.tensor(False)

    def attended(call: Callable[..., Any]) -> Callable[..., Tensor]:
        def whole(*given: Tensor) -> Tensor:
            output: Tensor = call(module, *given, mask, width**-0.5)[0]
            return torch.where(blind, output.detach(), output)

        return whole

    found, expected = (gradients(attended(call), None, query, key, value) for call in (replaced, eager_attention))
    same(found, expected, TOLERANCE[dtype])
    assert replaced(module, query, key, value, mask, width**-0.5)[1] is None


def test_weights_dropout_and_foreign_masks_are_the_originals() -> None:
    asked: list[str] = []

    def original(*args: Any, **kwargs: Any) -> Any:
        asked.append("original")

    replaced = attention.attention(original, None)
    module = Heads(1).train()
    one = torch.randn(1, 2, 3, 4)
    replaced(module, one, one, one, None, 1.0, 0.1)
    replaced(module, one, one, one, None, 1.0, output_attentions=True)
    replaced(module, one, one, one, torch.zeros(1, 1, 3, 3, requires_grad=True), 1.0)
    replaced(module, one, one, one, torch.zeros(1, 1, 3, 7), 1.0)
    replaced(module, one.double(), one.double(), one.double(), None, 1.0)
    assert len(asked) == 5
    replaced(module.eval(), one, one, one, None, 1.0, 0.1)
    assert len(asked) == 5


def named(name: str, module: str = "lerobot.policies.pi05.modeling_pi05") -> Callable[..., Any]:
    """A function that says whether it was called with what."""

    def function(*args: Any, **kwargs: Any) -> Any:
        return (args, kwargs)

    function.__name__, function.__module__ = name, module
    return function


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({}, {"image_embed_func", "layer 0", "layer 1", "layer 2"}),
        ({"layer_stride": 0}, {"image_embed_func"}),
        ({"layer_stride": 2}, {"image_embed_func", "layer 0", "layer 2"}),
        ({"images": False, "whole": True, "layer_stride": 0}, {"forward_func"}),
    ],
)
@pytest.mark.parametrize("by_number", [False, True])
def test_which_parts_stay_checkpointed(options: dict[str, Any], kept: set[str], by_number: bool) -> None:
    went: set[str] = set()

    def original(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        went.add(function.__name__ if function.__name__ != "compute_layer_complete" else f"layer {args[-1]}")
        assert kwargs.pop("use_reentrant") is False
        return function(*args, **kwargs)

    replaced = checkpoint.checkpoint(original, Checkpoint(**options))
    for name in ("forward_func", "image_embed_func", "lang_embed_func", "compute_final_norms", "time_mlp_func"):
        assert replaced(named(name), 1, use_reentrant=False, preserve_rng_state=False, x=2) in (
            ((1,), {"x": 2}),
            None,
        ) or (name in kept)
    for index in range(3):
        layers = (SimpleNamespace(self_attn=SimpleNamespace(layer_idx=index)),)
        first, rest = (index, {}) if by_number else ("embeds", {"layers": layers})
        args, kwargs = replaced(named("compute_layer_complete"), first, index, use_reentrant=False, **rest)
        assert args == (first, index)
        assert kwargs == rest
    assert went == kept


def test_checkpoints_of_other_code_stay() -> None:
    replaced = checkpoint.checkpoint(lambda function, *args, **kwargs: ("kept", kwargs), Checkpoint(layer_stride=0))
    assert replaced(named("forward_func", "somebody.else"), 1, use_reentrant=False) == (
        "kept",
        {"use_reentrant": False},
    )
    assert replaced(nn.Linear(1, 1), torch.ones(1), use_reentrant=True) == ("kept", {"use_reentrant": True})


def test_a_negative_stride_is_refused() -> None:
    with pytest.raises(ValueError, match=r"lerobot.checkpoint: layer_stride must be 0 or more, found -1"):
        checkpoint.checkpoint(lambda: None, Checkpoint(layer_stride=-1))


def test_tiny_sizes() -> None:
    def get_gemma_config(variant: str) -> Any:
        return SimpleNamespace(width=2048, mlp_dim=16384, depth=18, num_heads=8, num_kv_heads=1, head_dim=256)

    sizes = tiny.get_gemma_config(get_gemma_config, Tiny(width=32, expert_width=16, depth=3))
    assert vars(sizes("gemma_2b")) == {
        **{"width": 32, "mlp_dim": 64, "depth": 3, "num_heads": 8, "num_kv_heads": 1, "head_dim": 16}
    }
    assert vars(sizes("gemma_300m"))["width"] == 16
    config = SimpleNamespace(
        vision_config=SimpleNamespace(hidden_size=1152), text_config=SimpleNamespace(hidden_size=32), vocab_size=0
    )
    seen: list[Any] = []
    tiny.paligemma(lambda self, config: seen.append(config), Tiny(vocabulary=99))(object(), config)
    assert seen == [config]
    assert config.vision_config.projection_dim == 32, "what comes out of the projector goes into the language model"
    assert config.text_config.vocab_size == 99
    tiny.expert(lambda self, config: seen.append(config), Tiny(vocabulary=98))(object(), config)
    assert config.vocab_size == 98


def test_a_compiler_goes_through_all_of_them_in_one_graph() -> None:
    torch.manual_seed(0)
    mlp, norm, module = Mlp(6, 10), Norm(6, 5), Heads(2)
    x, cond, mask = torch.randn(2, 3, 6), torch.randn(2, 5), torch.zeros(2, 1, 3, 3)
    calls: list[tuple[Any, Any, Any]] = [
        (Mlp.forward, Norm.forward, eager_attention),
        (
            geglu.forward(Mlp.forward, None),
            ada_rms_norm.forward(Norm.forward, None),
            attention.attention(eager_attention, None),
        ),
    ]

    def layer(x: Tensor, parts: tuple[Any, Any, Any]) -> Tensor:
        normed, gate = parts[1](norm, x, cond)
        heads = normed.view(2, 3, 2, 3).transpose(1, 2)
        attended: Tensor = parts[2](module, heads, heads[:, :1], heads[:, :1], mask, 0.5)[0].flatten(2)
        result: Tensor = parts[0](mlp, x + attended * gate)
        return result

    compiled = torch.compile(layer, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x, calls[1]), layer(x, calls[0]))
