# SPDX-License-Identifier: Apache-2.0
"""Each group computes what the original computes, within its declared class, and falls back where it must."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.tiny_vla.patching import applied, groups
from tests.tiny_vla.test_model import SMALL, batch, lively
from tiny_vla import attention, joint, layers, rotary
from tiny_vla.attention import MASKED, eager_attention, make_attention_mask
from tiny_vla.config import ModelConfig
from tiny_vla.model import TinyVLA
from tiny_vla.rotary import RotaryEmbedding
from turbo_hydra.catalogs.models.tiny_vla.options import CheckpointOff, FusedAttention
from turbo_hydra.engine.objects import load_object

BITWISE = ("tiny_vla.checkpoint_off", "tiny_vla.rope_once")
CLOSE = ("tiny_vla.fused_attention", "tiny_vla.last_prefix")
HERE = "turbo_hydra.catalogs.models.tiny_vla"


@pytest.fixture
def reasons(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Collect what guards say."""
    said: list[str] = []
    for name in ("checkpoint_off", "fused_attention", "compile_layer"):
        load_object(f"{HERE}.{name}.__name__")
        monkeypatch.setattr(f"{HERE}.{name}.fallback", said.append)
    return said


def step(model: TinyVLA, data: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor | None]]:
    """Loss and gradients at one seed."""
    torch.manual_seed(3)
    model.zero_grad()
    loss = model(**data)
    loss.mean().backward()
    return loss.detach(), {name: parameter.grad for name, parameter in model.named_parameters()}


def same(a: Tensor | None, b: Tensor | None, name: str, atol: float | None) -> None:
    assert (a is None) == (b is None), name
    if a is not None and b is not None:
        if atol is None:
            assert torch.equal(a, b), name
        else:
            torch.testing.assert_close(a, b, atol=atol, rtol=1e-4, msg=lambda text: f"{name}: {text}")


@pytest.mark.parametrize("checkpointing", [True, False])
@pytest.mark.parametrize("ids", [*((id,) for id in BITWISE + CLOSE), BITWISE + CLOSE], ids=lambda ids: "+".join(ids))
def test_a_training_step_is_the_same_step(ids: tuple[str, ...], checkpointing: bool) -> None:
    model, data = lively(SMALL), batch(SMALL)
    model.transformer.gradient_checkpointing = model.vision.gradient_checkpointing = checkpointing
    loss, gradients = step(model, data)
    with applied(*ids):
        new_loss, new_gradients = step(model, data)
        again, _ = step(model, data)
    atol = None if all(id in BITWISE for id in ids) else 1e-6
    same(new_loss, loss, "loss", atol)
    same(again, new_loss, "loss again", None)
    for name, gradient in gradients.items():
        same(new_gradients[name], gradient, name, atol)


@pytest.mark.parametrize("id", BITWISE + CLOSE)
def test_sampling_is_the_same_sampling(id: str) -> None:
    model, data = lively(SMALL).eval(), batch(SMALL)
    noise = torch.randn_like(data.pop("actions"))
    expected = model.sample(**data, noise=noise, steps=3)
    with applied(id):
        torch.testing.assert_close(model.sample(**data, noise=noise, steps=3), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("id", BITWISE + CLOSE)
def test_a_declared_class_of_numerics_is_the_tested_one(id: str) -> None:
    about = groups()[id].about
    assert about is not None
    assert about.numerics == ("bitwise" if id in BITWISE else "close")


def inputs(length: int, heads: int, kv_heads: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    query = torch.randn(2, length, heads, 8, dtype=dtype).transpose(1, 2)
    key, value = (torch.randn(2, length, kv_heads, 8, dtype=dtype).transpose(1, 2) for _ in range(2))
    present = torch.ones(2, length, dtype=torch.bool)
    present[0, length // 2 : length // 2 + 2] = False
    new_block = torch.zeros(length, dtype=torch.bool)
    new_block[-1] = True
    return query, key, value, make_attention_mask(present, new_block)


TOLERANCE = {torch.float32: 2e-6, torch.bfloat16: 2e-2, torch.float16: 2e-3}


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("length", [1, 7, 151])
@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 1), (4, 2), (3, 3)])
@pytest.mark.parametrize("masked", [True, False])
def test_fused_attention_is_attention(dtype: torch.dtype, length: int, heads: int, kv_heads: int, masked: bool) -> None:
    query, key, value, mask = inputs(length, heads, kv_heads, dtype)
    # The reference is the same formula in float64.
    wide = [item.double().requires_grad_() for item in (query, key, value)]
    expected = eager_attention(wide[0], wide[1], wide[2], mask.double() if masked else None, 0.3)
    fused = load_object(f"{HERE}.fused_attention.attention")(eager_attention, FusedAttention())
    narrow = [item.requires_grad_() for item in (query, key, value)]
    output = fused(*narrow, mask if masked else None, 0.3)
    assert output.dtype == dtype
    atol = TOLERANCE[dtype]
    torch.testing.assert_close(output.double(), expected, atol=atol, rtol=atol)
    # Rows that may see nothing are left out: their scores get no gradient from the fused attention.
    weight = torch.randn_like(expected)
    if masked:
        weight[(mask == 0).sum(-1)[:, 0] == 0] = 0
    got = torch.autograd.grad((output.double() * weight).sum(), narrow)
    for mine, reference in zip(got, torch.autograd.grad((expected * weight).sum(), wide), strict=True):
        torch.testing.assert_close(mine.double(), reference, atol=8 * atol, rtol=8 * atol)


def test_rows_without_keys_give_their_values_the_gradient_of_a_mean() -> None:
    query, key, value, _ = inputs(6, 4, 1, torch.float32)
    mask = torch.full((2, 1, 6, 6), MASKED)
    fused = load_object(f"{HERE}.fused_attention.attention")(eager_attention, FusedAttention())
    gradients = []
    for function in (eager_attention, fused):
        leaf = value.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(function(query, key, leaf, mask, 0.3).square().sum(), leaf)
        gradients.append(gradient)
    torch.testing.assert_close(gradients[1], gradients[0])


def test_a_mask_that_was_written_to_is_prepared_again() -> None:
    query, key, value, mask = inputs(5, 2, 1, torch.float32)
    fused = load_object(f"{HERE}.fused_attention.attention")(eager_attention, FusedAttention())
    for _ in range(2):
        expected = eager_attention(query, key, value, mask, 0.3)
        torch.testing.assert_close(fused(query, key, value, mask, 0.3), expected, atol=1e-6, rtol=1e-5)
        mask[:, :, :, 0] = MASKED


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda q, k, v, m: (q.double(), k.double(), v.double(), m), "dtypes"),
        (lambda q, k, v, m: (q, k, v, m.requires_grad_()), "constant"),
        (lambda q, k, v, m: (q, k, v, m[:, 0]), "constant"),
        (lambda q, k, v, m: (q[:, :, :2], k, v, m[:, :, :2]), "min_length"),
    ],
)
def test_fused_attention_gives_the_originals_result_elsewhere(
    change: Callable[..., tuple[Tensor, ...]], reason: str, reasons: list[str]
) -> None:
    def original(*args: Any) -> str:
        return "original"

    fused = load_object(f"{HERE}.fused_attention.attention")(original, FusedAttention(min_length=4))
    assert fused(*change(*inputs(6, 4, 1, torch.float32)), 0.3) == "original"
    assert len(reasons) == 1
    assert reason in reasons[0]


def test_rope_is_computed_once_for_all_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    original = RotaryEmbedding.forward

    def counted(self: RotaryEmbedding, x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        calls.append(x.dtype)
        return original(self, x, position_ids)

    monkeypatch.setattr(rotary.RotaryEmbedding, "forward", counted)
    model, data = lively(SMALL), batch(SMALL)
    step(model, data)
    assert len(calls) == 2 * SMALL.layers  # forward, and again in the backward pass
    calls.clear()
    with applied("tiny_vla.rope_once"):
        step(model, data)
        assert len(calls) == 1
        step(model, data)
        assert len(calls) == 2


def test_rope_follows_positions_dtypes_and_modules() -> None:
    one, two = RotaryEmbedding(8), RotaryEmbedding(8, base=100.0)
    positions, others = torch.arange(6)[None], torch.arange(1, 7)[None]
    x, half = torch.zeros(1), torch.zeros(1, dtype=torch.bfloat16)
    cases = [(one, x, positions), (one, half, positions), (two, x, positions), (one, x, others), (one, x, positions)]
    expected = [module(value, ids) for module, value, ids in cases]
    with applied("tiny_vla.rope_once"):
        for (module, value, ids), (cos, sin) in zip(cases, expected, strict=True):
            for _ in range(2):
                found = module(value, ids)
                assert torch.equal(found[0], cos)
                assert torch.equal(found[1], sin)
        positions += 1  # in place: the same object holds other positions
        assert torch.equal(one(x, positions)[0], one(x, others)[0])


def test_what_was_made_in_inference_mode_is_not_used_in_training() -> None:
    module, x = RotaryEmbedding(8), torch.zeros(1)
    positions = torch.arange(6)[None]
    with applied("tiny_vla.rope_once"):
        with torch.inference_mode():
            module(x, positions)
        query = torch.randn(1, 2, 6, 8, requires_grad=True)
        turned, _ = rotary.apply_rotary(query, query, *module(x, positions))
        turned.sum().backward()
    assert query.grad is not None


def test_layers_above_a_size_stay_checkpointed(reasons: list[str]) -> None:
    def original(layer: torch.nn.Module, *args: Tensor) -> str:
        return "checkpointed"

    call = load_object(f"{HERE}.checkpoint_off.checkpointed")(original, CheckpointOff(keep_above=12))
    layer = torch.nn.Identity()
    small, large = torch.zeros(3, 4, 9), torch.zeros(2, 7, 9)
    assert call(layer, small) is small
    assert call(layer, large) == "checkpointed"
    assert reasons == ["more tokens than keep_above"]


def test_activations_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        pytest.fail("a layer was checkpointed")

    model, data = lively(SMALL), batch(SMALL)
    with applied("tiny_vla.checkpoint_off"):
        monkeypatch.setattr(torch.utils.checkpoint, "checkpoint", refuse)
        step(model, data)


def test_the_last_layer_attends_from_the_experts_tokens_only(monkeypatch: pytest.MonkeyPatch) -> None:
    queries = []
    original = attention.eager_attention

    def noted(query: Tensor, key: Tensor, *rest: Any) -> Tensor:
        queries.append((query.shape[2], key.shape[2]))
        return original(query, key, *rest)

    monkeypatch.setattr(joint, "eager_attention", noted)
    model, data = lively(SMALL).eval(), batch(SMALL)
    length = 2 * SMALL.patches + SMALL.instruction_length + 1 + SMALL.horizon
    with applied("tiny_vla.last_prefix"):
        model(**data)
    assert queries == [(length, length), (SMALL.horizon, length)]


def test_compiled_layers_stay_out_of_evaluation(reasons: list[str]) -> None:
    model, data = lively(SMALL).eval(), batch(SMALL)
    torch.manual_seed(3)
    expected = model(**data)
    with applied("tiny_vla.compile_layer"):
        torch.manual_seed(3)
        assert torch.equal(model(**data), expected)
    assert set(reasons) == {"evaluation"}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_compiled_layers_train_alike_with_all_groups() -> None:
    model, data = lively(SMALL), batch(SMALL)
    loss, gradients = step(model, data)
    with applied(*BITWISE, *CLOSE, "tiny_vla.compile_layer"):
        new_loss, new_gradients = step(model, data)
    same(new_loss, loss, "loss", 1e-5)
    for name, gradient in gradients.items():
        same(new_gradients[name], gradient, name, 1e-5)


def test_full_size_losses_agree_over_several_steps() -> None:
    data = batch(ModelConfig(), 2)
    curves = []
    for ids in ((), (*BITWISE, *CLOSE, "torch.fused_adamw")):
        torch.manual_seed(0)
        with applied(*ids):
            model = TinyVLA(ModelConfig())
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
            curve = []
            for _ in range(4):
                optimizer.zero_grad()
                loss = model(**data).mean()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                curve.append(loss.item())
        curves.append(curve)
    assert curves[1] == pytest.approx(curves[0], rel=1e-4)
    assert curves[0][-1] < curves[0][0]


def test_a_layer_is_a_module_call_with_and_without_the_groups() -> None:
    """Hooks on layers still run."""
    model, data = lively(SMALL), batch(SMALL)
    seen: list[str] = []
    for name, layer in model.named_modules():
        if isinstance(layer, joint.JointLayer):
            layer.register_forward_hook(lambda *_, name=name: seen.append(name))
    with applied(*BITWISE, *CLOSE):
        model(**data)
    assert seen == [f"transformer.layers.{index}" for index in range(SMALL.layers)]


def test_norms_of_the_example_are_what_the_groups_leave_alone() -> None:
    """The groups touch exactly the declared targets."""
    targets = {member.target for group in groups().values() for member in group.members}
    before = {name: vars(layers)[name] for name in ("RMSNorm", "GeGLU", "gated_residual")}
    with applied(*BITWISE, *CLOSE):
        assert before == {name: vars(layers)[name] for name in before}
    assert not any("RMSNorm" in target or "GeGLU" in target for target in targets)
