# SPDX-License-Identifier: Apache-2.0
"""The loss without logits: the formula's value and gradients, and the calls that it leaves alone."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.transformers.conftest import CausalLM, Reasons, plain_forward, standard_loss
from turbo_hydra.catalogs.shared import chunked_loss
from turbo_hydra.catalogs.transformers.options import Loss

MODULE = "turbo_hydra.catalogs.transformers.loss"
pytestmark = pytest.mark.usefixtures("library")


def replaced(options: Loss | None = None) -> Callable[..., Any]:
    from turbo_hydra.catalogs.transformers.loss import causal_lm

    return causal_lm(plain_forward, options or Loss())


def batch(model: CausalLM, ignored: tuple[int, ...] = ()) -> tuple[Tensor, Tensor]:
    tokens = torch.randint(0, model.config.vocab_size, (3, 9))
    labels = tokens.clone()
    for number in ignored:
        labels[number % 3, number % 9] = -100
    return tokens, labels


def gradients(model: nn.Module, loss: Tensor) -> dict[str, Tensor]:
    model.zero_grad()
    loss.backward()
    return {name: item.grad.clone() for name, item in model.named_parameters() if item.grad is not None}


@pytest.mark.parametrize("part", [1 << 30, 37 * 4 * 5], ids=["one part", "parts of five rows"])
@pytest.mark.parametrize("softcap", [None, 0.5])
@pytest.mark.parametrize("items", [None, 11, torch.tensor(11)], ids=["mean", "a number", "a tensor"])
@pytest.mark.parametrize("ignored", [(), (3, 4, 8, 13)])
def test_value_and_gradients_are_those_of_the_formula(
    monkeypatch: pytest.MonkeyPatch, part: int, softcap: float | None, items: Any, ignored: tuple[int, ...]
) -> None:
    monkeypatch.setitem(chunked_loss.PART, "cpu", part)
    model = CausalLM(softcap=softcap)
    tokens, labels = batch(model, ignored)
    more = {} if items is None else {"num_items_in_batch": items}
    expected = plain_forward(model, tokens, labels=labels, **more).loss
    expected_gradients = gradients(model, expected)
    found = replaced()(model, tokens, labels=labels, **more)
    assert found.logits is None
    torch.testing.assert_close(found.loss, expected)
    found_gradients = gradients(model, found.loss)
    assert found_gradients.keys() == expected_gradients.keys()
    for name, value in expected_gradients.items():
        torch.testing.assert_close(found_gradients[name], value, msg=name)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision_is_as_near_to_float64_as_the_plain_way(monkeypatch: pytest.MonkeyPatch, dtype: Any) -> None:
    monkeypatch.setitem(chunked_loss.PART, "cpu", 37 * 4 * 5)
    model = CausalLM()
    tokens, labels = batch(model, (3, 4))
    runs = {}
    exact = CausalLM().double()
    exact.load_state_dict(model.to(dtype).state_dict())
    for name, owner, forward in (("exact", exact, plain_forward), ("plain", model, plain_forward)):
        loss = forward(owner, tokens, labels=labels).loss
        runs[name] = {"loss": loss.detach(), **gradients(owner, loss)}
    loss = replaced()(model, tokens, labels=labels).loss
    assert loss.dtype == torch.float32
    runs["ours"] = {"loss": loss.detach(), **gradients(model, loss)}
    for name, value in runs["exact"].items():
        errors = {way: float((runs[way][name].double() - value).norm()) for way in ("plain", "ours")}
        # One unit in the last place of the whole is what rounding in another order may cost.
        assert errors["ours"] <= 1.25 * errors["plain"] + torch.finfo(dtype).eps * float(value.norm()), (name, errors)


def test_under_autocast_products_are_made_as_without(monkeypatch: pytest.MonkeyPatch) -> None:
    model = CausalLM()
    tokens, labels = batch(model)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        expected = plain_forward(model, tokens, labels=labels).loss
        found = replaced()(model, tokens, labels=labels).loss
    torch.testing.assert_close(found, expected)
    one, other = gradients(model, expected), gradients(model, found)
    for name, value in one.items():
        assert other[name].dtype == value.dtype == torch.float32
        torch.testing.assert_close(other[name], value, atol=2e-3, rtol=2e-2, msg=name)


def test_of_the_logits_a_part_is_there_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    original = chunked_loss._part

    def part(x: Tensor, weight: Tensor, *rest: Any) -> Any:
        sizes.append(x.shape[0] * weight.shape[0] * 4)
        return original(x, weight, *rest)

    monkeypatch.setattr(chunked_loss, "_part", part)
    monkeypatch.setitem(chunked_loss.PART, "cpu", 37 * 4 * 5)
    model = CausalLM()
    tokens, labels = batch(model)
    replaced()(model, tokens, labels=labels).loss.backward()
    assert sizes == [37 * 4 * 5] * 5 + [37 * 4 * 2], "27 rows"


def test_a_loss_alone_makes_no_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    original = chunked_loss._part

    def part(*given: Any) -> Any:
        asked.append(given[-1])
        return original(*given)

    monkeypatch.setattr(chunked_loss, "_part", part)
    model = CausalLM()
    tokens, labels = batch(model)
    with torch.no_grad():
        found = replaced()(model, tokens, labels=labels).loss
        torch.testing.assert_close(found, plain_forward(model, tokens, labels=labels).loss)
    assert asked == [False]


def test_targets_that_are_all_ignored_give_what_the_formula_gives() -> None:
    model = CausalLM()
    tokens, labels = batch(model)
    labels[:] = -100
    found = replaced()(model, tokens, labels=labels, num_items_in_batch=4).loss
    assert float(found.detach()) == 0.0
    assert all(float(value.abs().max()) == 0.0 for value in gradients(model, found).values())
    assert replaced()(model, tokens, labels=labels).loss.isnan()


def test_gradients_are_scaled_by_what_comes_after_the_loss() -> None:
    model = CausalLM()
    tokens, labels = batch(model)
    expected = gradients(model, plain_forward(model, tokens, labels=labels).loss * 3.0)
    found = gradients(model, replaced()(model, tokens, labels=labels).loss * 3.0)
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, msg=name)


def test_the_model_gets_all_else_and_what_it_gives_is_handed_on() -> None:
    model = CausalLM()
    tokens, labels = batch(model)
    found = replaced()(model, tokens, "kept", labels=labels, num_items_in_batch=5, output_hidden_states=False)
    assert found.cache == "cache"
    assert model.model.called.pop("input_ids") is tokens
    assert model.model.called == {"cache": "kept", "num_items_in_batch": 5, "output_hidden_states": False}


def other_loss(*args: Any, **kwargs: Any) -> Tensor:
    return standard_loss(*args, **kwargs)


class Adapter(nn.Linear):
    """A layer that does more than its weight tells."""


def hooked(model: CausalLM) -> None:
    model.lm_head.register_forward_hook(lambda *_: None)


def offloaded(model: CausalLM) -> None:
    model.lm_head.forward = model.lm_head.forward  # type: ignore[method-assign]


def with_bias(model: CausalLM) -> None:
    model.lm_head = nn.Linear(16, 37)


def adapted(model: CausalLM) -> None:
    model.lm_head = Adapter(16, 37, bias=False)


def another_loss(model: CausalLM) -> None:
    model.loss_function = other_loss


def larger_vocabulary(model: CausalLM) -> None:
    model.lm_head = nn.Linear(16, 40, bias=False)
    model.loss_function = standard_loss


def by_position(model: CausalLM) -> None:
    model.config.return_dict = False


def in_evaluation(model: CausalLM) -> None:
    model.eval()


CHANGES: list[tuple[Callable[[CausalLM], None], str]] = [
    (hooked, "a linear layer that somebody has hooked"),
    (offloaded, "a linear layer that somebody has hooked"),
    (with_bias, "logits with a bias"),
    (adapted, "a layer that is no plain linear one"),
    (another_loss, "another loss function"),
    (larger_vocabulary, "a vocabulary of another size than the config's"),
    (by_position, "outputs by position"),
    (in_evaluation, "evaluation, whose logits may be wanted"),
]
CALLS: list[tuple[dict[str, Any], str]] = [
    ({"labels": None}, "no labels"),
    ({"logits_to_keep": 4}, "some logits are asked for"),
    ({"logits_to_keep": torch.tensor([1])}, "some logits are asked for"),
    ({"return_dict": False}, "outputs by position"),
    ({"num_items_in_batch": torch.tensor([3, 4])}, "a number of items for each of several parts"),
]


@pytest.mark.parametrize(("change", "reason"), CHANGES, ids=[change.__name__ for change, _ in CHANGES])
def test_a_model_that_differs_keeps_its_own_forward(
    reasons_of: Reasons, change: Callable[[CausalLM], None], reason: str
) -> None:
    said = reasons_of(MODULE)
    model = CausalLM()
    change(model)
    tokens, labels = batch(model)
    found = replaced()(model, tokens, labels=labels)
    assert said == [reason]
    assert torch.equal(found.logits, plain_forward(model, tokens).logits)


@pytest.mark.parametrize(("given", "reason"), CALLS, ids=[reason for _, reason in CALLS])
def test_a_call_that_wants_logits_gets_them(reasons_of: Reasons, given: dict[str, Any], reason: str) -> None:
    said = reasons_of(MODULE)
    model = CausalLM()
    tokens, labels = batch(model)
    found = replaced()(model, tokens, **{"labels": labels, **given})
    assert said == [reason]
    assert found.logits.shape == (3, 9, 37)


def test_losses_of_evaluation_go_without_logits_where_that_is_asked_for(reasons_of: Reasons) -> None:
    said = reasons_of(MODULE)
    model = CausalLM().eval()
    tokens, labels = batch(model)
    found = replaced(Loss(when="always"))(model, tokens, labels=labels)
    assert (said, found.logits) == ([], None)


def test_it_is_traced_in_one_graph() -> None:
    model = CausalLM()
    tokens, labels = batch(model, (3,))
    forward = replaced()

    def loss(model: CausalLM, tokens: Tensor, labels: Tensor) -> Tensor:
        result: Tensor = forward(model, tokens, labels=labels, num_items_in_batch=7).loss
        return result

    expected = gradients(model, loss(model, tokens, labels))
    compiled = torch.compile(loss, backend="aot_eager", fullgraph=True)
    found = gradients(model, compiled(model, tokens, labels))
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, msg=name)


def test_another_vocabulary_is_the_text_model_s() -> None:
    model = CausalLM()
    tokens, labels = batch(model)
    model.config = SimpleNamespace(text_config=model.config, return_dict=True)
    assert replaced()(model, tokens, labels=labels).logits is None
