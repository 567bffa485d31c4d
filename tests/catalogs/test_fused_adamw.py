# SPDX-License-Identifier: Apache-2.0
"""Optimizers with their fused kernels: the same steps, the same checkpoints, and only where it fits."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.catalogs.patching import applied

ID = "torch.fused_adamw"
AdamW = torch.optim.AdamW


@pytest.fixture
def reasons(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Collect what the guard says."""
    import turbo_hydra.catalogs.shared.fused_adamw  # noqa: F401

    said: list[str] = []
    inner = "part of AdamW, which is asked itself"  # what AdamW's own constructor calls is told apart, and no refusal
    monkeypatch.setattr(
        "turbo_hydra.catalogs.shared.fused_adamw.fallback",
        lambda reason: said.append(reason) if reason != inner else None,
    )
    return said


def model(dtype: torch.dtype = torch.float32) -> nn.Module:
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(7, 5), nn.Tanh(), nn.Linear(5, 3)).to(dtype)


def train(net: nn.Module, optimizer: torch.optim.Optimizer, steps: int, seed: int = 1) -> None:
    generator = torch.Generator().manual_seed(seed)
    dtype = next(net.parameters()).dtype
    for _ in range(steps):
        optimizer.zero_grad()
        net(torch.randn(4, 7, generator=generator).to(dtype)).square().sum().backward()
        optimizer.step()


def is_fused(optimizer: torch.optim.Optimizer) -> bool:
    chosen = {group["fused"] for group in optimizer.param_groups}
    assert len(chosen) == 1
    return bool(chosen.pop())


@pytest.mark.parametrize(("dtype", "atol"), [(torch.float32, 1e-6), (torch.float64, 1e-12), (torch.bfloat16, 2e-2)])
@pytest.mark.parametrize("settings", [{}, {"amsgrad": True}, {"maximize": True, "betas": (0.5, 0.9)}], ids=str)
def test_the_steps_are_the_plain_ones(dtype: torch.dtype, atol: float, settings: dict[str, Any]) -> None:
    plain, fused = model(dtype), model(dtype)
    train(plain, AdamW(plain.parameters(), lr=1e-2, weight_decay=0.1, **settings), 5)
    with applied(ID):
        optimizer = AdamW(fused.parameters(), lr=1e-2, weight_decay=0.1, **settings)
        assert is_fused(optimizer)
        train(fused, optimizer, 5)
    for mine, reference in zip(fused.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(mine, reference, atol=atol, rtol=atol)


def named(net: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    yield from net.named_parameters()


@pytest.mark.parametrize(
    "given",
    [
        lambda net: net.parameters(),
        lambda net: list(net.parameters()),
        lambda net: [{"params": net[0].parameters(), "lr": 0.1}, {"params": list(net[2].parameters())}],
        lambda net: ({"params": part.parameters()} for part in (net[0], net[2])),
        lambda net: [{"params": net[0].weight}],
        named,
    ],
    ids=["generator", "list", "groups", "generator of groups", "one tensor", "named"],
)
def test_parameters_may_be_given_in_every_way_that_torch_takes(given: Callable[[Any], Any]) -> None:
    net = model()
    with applied(ID):
        optimizer = AdamW(given(net))
    assert is_fused(optimizer)
    plain = AdamW(given(net))
    assert [[id(item) for item in group["params"]] for group in optimizer.param_groups] == [
        [id(item) for item in group["params"]] for group in plain.param_groups
    ]
    assert [group["lr"] for group in optimizer.param_groups] == [group["lr"] for group in plain.param_groups]


class OwnStep(AdamW):
    """A subclass that steps in its own way."""

    def step(self, closure: Any = None) -> Any:
        return super().step(closure)


class OwnTensor(Tensor):
    """A tensor of another kind."""


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda net: AdamW(net.parameters(), fused=False), "the script chose"),
        (lambda net: AdamW(net.parameters(), foreach=True), "the script chose"),
        (lambda net: AdamW(net.parameters(), differentiable=True), "differentiable"),
        (lambda net: AdamW(net.parameters(), lr=torch.tensor(0.1)), "tensors"),
        (lambda net: AdamW([{"params": list(net.parameters()), "foreach": False}]), "parameter group"),
        (lambda net: AdamW([nn.Parameter(torch.ones(2, dtype=torch.complex64))]), "without a fused kernel"),
        (lambda net: AdamW([torch.ones(2, device="meta", requires_grad=True)]), "without a fused kernel"),
        (lambda net: AdamW([torch.ones(2).as_subclass(OwnTensor).requires_grad_()]), "not plain"),
        (lambda net: OwnStep(net.parameters()), "a step of its own"),
    ],
)
def test_other_optimizers_stay_as_they_are(make: Callable[[Any], AdamW], reason: str, reasons: list[str]) -> None:
    plain = make(model())
    with applied(ID):
        optimizer = make(model())
    assert len(reasons) == 1
    assert reason in reasons[0]
    for mine, reference in zip(optimizer.param_groups, plain.param_groups, strict=True):
        assert {key: str(mine[key]) for key in mine if key != "params"} == {
            key: str(reference[key]) for key in reference if key != "params"
        }


def test_a_subclass_without_a_step_of_its_own_is_fused_whether_or_not_it_came_first(reasons: list[str]) -> None:
    class First(AdamW):
        pass

    with applied(ID):
        assert is_fused(First(model().parameters()))
        assert is_fused(AdamW(model().parameters()))
        assert is_fused(First(model().parameters()))
    assert reasons == []


@pytest.mark.parametrize("arguments", [([],), (torch.ones(2),), ([torch.ones(2, requires_grad=True)], -1.0)], ids=str)
def test_what_torch_refuses_is_refused_in_the_same_words(arguments: tuple[Any, ...]) -> None:
    messages = []
    for ids in ((), (ID,)):
        with applied(*ids), pytest.raises((ValueError, TypeError)) as caught:
            AdamW(*arguments)
        messages.append((type(caught.value), str(caught.value)))
    assert messages[0] == messages[1]


def round_trip(state: Any) -> Any:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file)


@pytest.mark.parametrize("saved_by", ["plain", "fused"])
@pytest.mark.parametrize("loaded_by", ["plain", "fused"])
def test_a_checkpoint_of_one_goes_on_in_the_other(saved_by: str, loaded_by: str) -> None:
    def optimizer_of(kind: str, net: nn.Module) -> AdamW:
        with applied(*([ID] if kind == "fused" else [])):
            return AdamW(net.parameters(), lr=1e-2)

    through = model()
    train(through, reference := optimizer_of("plain", through), 3)

    first = model()
    train(first, one := optimizer_of(saved_by, first), 3)
    saved = round_trip({"model": first.state_dict(), "optimizer": one.state_dict()})
    # A checkpoint does not tell which of the two wrote it.
    assert [group["fused"] for group in saved["optimizer"]["param_groups"]] == [None]
    assert saved["optimizer"]["state"].keys() == reference.state_dict()["state"].keys()
    assert is_fused(one) == (saved_by == "fused")  # saving changed nothing in the optimizer

    second = model()
    second.load_state_dict(saved["model"])
    other = optimizer_of(loaded_by, second)
    other.load_state_dict(saved["optimizer"])
    assert is_fused(other) == (loaded_by == "fused")
    train(through, reference, 2, seed=2)
    train(second, other, 2, seed=2)
    for mine, expected in zip(second.parameters(), through.parameters(), strict=True):
        torch.testing.assert_close(mine, expected, atol=1e-6, rtol=1e-5)
    assert {float(entry["step"]) for entry in other.state.values()} == {5.0}


def test_schedulers_change_the_learning_rate_as_before() -> None:
    nets = [model(), model()]
    for ids, net in zip(((), (ID,)), nets, strict=True):
        with applied(*ids):
            optimizer = AdamW(net.parameters(), lr=1e-2)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.5**epoch)
        for seed in range(3):
            train(net, optimizer, 1, seed)
            scheduler.step()
        assert optimizer.param_groups[0]["lr"] == pytest.approx(1e-2 / 8)
    for mine, expected in zip(nets[1].parameters(), nets[0].parameters(), strict=True):
        torch.testing.assert_close(mine, expected, atol=1e-6, rtol=1e-5)


def test_copies_and_pickles_step_on() -> None:
    net = model()
    with applied(ID):
        optimizer = AdamW(net.parameters())
    train(net, optimizer, 1)
    for copied in (copy.deepcopy(optimizer), pickle.loads(pickle.dumps(optimizer))):
        assert is_fused(copied)
        for parameter in copied.param_groups[0]["params"]:
            parameter.grad = torch.ones_like(parameter)
        copied.step()


# Adam and SGD.

EVERY = ("AdamW", "Adam", "SGD")
KINDS: dict[str, Any] = {
    "Adam": lambda params, **more: torch.optim.Adam(params, lr=1e-2, weight_decay=0.1, **more),
    "SGD": lambda params, **more: torch.optim.SGD(params, lr=1e-2, weight_decay=0.1, **more),
    "SGD with momentum": lambda params, **more: torch.optim.SGD(params, 1e-2, 0.9, nesterov=True, **more),
}


@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize(("dtype", "atol"), [(torch.float32, 1e-6), (torch.float64, 1e-12), (torch.bfloat16, 2e-2)])
def test_adam_and_sgd_step_as_the_plain_ones(make: Any, dtype: torch.dtype, atol: float) -> None:
    plain, fused = model(dtype), model(dtype)
    train(plain, make(plain.parameters()), 5)
    with applied(ID, optimizers=EVERY):
        optimizer = make(fused.parameters())
    train(fused, optimizer, 5)
    # torch 2.13's fused SGD for bfloat16 on a CPU goes elsewhere.
    assert is_fused(optimizer) == (isinstance(optimizer, torch.optim.Adam) or dtype is not torch.bfloat16)
    for mine, reference in zip(fused.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(mine, reference, atol=atol, rtol=atol)
    assert [group["fused"] for group in optimizer.state_dict()["param_groups"]] == [None]


def test_only_the_optimizers_that_the_option_names(reasons: list[str]) -> None:
    with applied(ID):
        assert not is_fused(torch.optim.SGD(model().parameters(), 0.1))
    assert reasons == ["left out by an option"]
    with applied(ID, optimizers=("AdamW",)):
        assert is_fused(AdamW(model().parameters()))
        assert not is_fused(torch.optim.Adam(model().parameters()))
    assert set(reasons) == {"left out by an option"}
    with pytest.raises(ValueError, match="optimizers names Lion; what has a fused kernel here is AdamW, Adam and SGD"):
        applied(ID, optimizers=("Lion",)).__enter__()


def test_sgd_takes_sparse_gradients_and_momentum_that_begins_later_as_before() -> None:
    def embed() -> Any:
        torch.manual_seed(6)
        return nn.ModuleDict(
            {"words": nn.Embedding(9, 4, sparse=True), "late": nn.Linear(4, 2), "out": nn.Linear(4, 1)}
        )

    nets, chosen = [embed(), embed()], []
    for ids, net in zip(((), (ID,)), nets, strict=True):
        with applied(*ids, **({"optimizers": EVERY} if ids else {})):
            optimizers = [
                torch.optim.SGD(net["words"].parameters(), 0.1),
                torch.optim.SGD([*net["late"].parameters(), *net["out"].parameters()], 0.1, 0.9),
            ]
        for step in range(4):
            hidden = net["words"](torch.tensor([1, 3, 3]))
            loss = net["out"](hidden).sum() + (net["late"](hidden).sum() if step > 1 else 0)
            for optimizer in optimizers:
                optimizer.zero_grad()
            loss.backward()
            for optimizer in optimizers:
                optimizer.step()
            chosen.append([bool(optimizer.param_groups[0]["fused"]) for optimizer in optimizers])
    assert chosen[:4] == [[False, False]] * 4
    # The sparse one never; the other not in the step in which only some parameters have a momentum.
    assert chosen[4:] == [[False, True], [False, True], [False, False], [False, True]]
    for mine, reference in zip(nets[1].parameters(), nets[0].parameters(), strict=True):
        torch.testing.assert_close(mine, reference, atol=1e-6, rtol=1e-5)


# What torch's own fused kernels take for granted.

OPTIMIZERS: dict[str, Any] = {"AdamW": lambda params: AdamW(params, 1e-2), **KINDS}


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
@pytest.mark.parametrize("laid", ["gradient", "state", "both"])
def test_gradients_and_a_resumed_state_may_be_laid_otherwise_than_their_parameter(make: Any, laid: str) -> None:
    results = []
    for ids in ((), (ID,)):
        torch.manual_seed(7)
        weight = torch.randn(4, 3, 2, 2)
        first = nn.Parameter(weight.clone())
        second = nn.Parameter(weight.clone().to(memory_format=torch.channels_last))
        gradients = [torch.randn(4, 3, 2, 2) for _ in range(3)]
        with applied(*ids, **({"optimizers": EVERY} if ids else {})):
            before, after = make([first]), make([second])
        if laid != "gradient":
            first.grad = gradients[0].clone()
            before.step()
            second.data.copy_(first.data)
            after.load_state_dict(round_trip(before.state_dict()))
        for gradient in gradients[1:]:
            second.grad = gradient.clone()
            if laid == "state":
                second.grad = second.grad.to(memory_format=torch.channels_last)
            after.step()
        results.append(second.detach().clone())
    torch.testing.assert_close(results[1], results[0], atol=1e-6, rtol=1e-5)


def test_a_parameter_that_is_laid_anew_while_training_takes_its_state_along() -> None:
    results = []
    for ids in ((), (ID,)):
        torch.manual_seed(8)
        net: Any = nn.Conv2d(3, 4, 2)
        with applied(*ids):
            optimizer = AdamW(net.parameters(), 1e-2)
        for step in range(4):
            if step == 2:
                net.to(memory_format=torch.channels_last)
            optimizer.zero_grad()
            net(torch.randn(2, 3, 5, 5)).square().sum().backward()
            optimizer.step()
        results.append(net.weight.detach().clone())
    torch.testing.assert_close(results[1], results[0], atol=1e-6, rtol=1e-5)


def test_a_parameter_with_gaps_in_memory_is_left_to_the_plain_optimizer(reasons: list[str]) -> None:
    with applied(ID):
        optimizer = AdamW([torch.ones(4, 6)[:, ::2].requires_grad_()])
    assert not is_fused(optimizer)
    assert reasons == ["a parameter that is not dense in memory"]


@pytest.mark.parametrize("dtype", [torch.complex64, torch.float32], ids=str)
def test_parameters_may_be_added_later(dtype: torch.dtype) -> None:
    results = []
    for ids in ((), (ID,)):
        items = [torch.ones(3, requires_grad=True), torch.ones(2, dtype=dtype, requires_grad=True)]
        with applied(*ids):
            optimizer = AdamW(items[:1], 1e-1)
        for _ in range(2):
            for item in items:
                item.grad = torch.ones_like(item)
            optimizer.step()
            if len(optimizer.param_groups) == 1:
                optimizer.add_param_group({"params": items[1:]})
        results.append([item.detach().clone() for item in items])
    for mine, reference in zip(results[1], results[0], strict=True):
        torch.testing.assert_close(mine, reference, atol=1e-6, rtol=1e-5)


def test_a_scaler_unscales_for_it_as_for_the_plain_one_so_that_clipping_after_it_is_right() -> None:
    results = []
    for ids in ((), (ID,)):
        net: Any = model()
        with applied(*ids):
            optimizer = AdamW(net.parameters(), 1e-2)
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        for step in range(3):
            optimizer.zero_grad()
            loss = net(torch.full((4, 7), 0.1 * (step + 1))).square().sum()
            scaler.scale(loss).backward()
            if step == 1:
                scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_(net.parameters(), 0.1)
            if step == 2:
                net[0].weight.grad[0, 0] = float("inf")
            scaler.step(optimizer)
            scaler.update()
        results.append([item.detach().clone() for item in net.parameters()] + [torch.tensor(scaler.get_scale())])
        assert not getattr(optimizer, "_step_supports_amp_scaling", False)
    for mine, reference in zip(results[1], results[0], strict=True):
        torch.testing.assert_close(mine, reference, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("choice", [{"fused": False}, {"foreach": True}, {"fused": None}], ids=str)
def test_a_parameter_groups_own_choice_is_looked_for(choice: dict[str, Any], reasons: list[str]) -> None:
    with applied(ID):
        optimizer = AdamW([{"params": model().parameters(), **choice}, {"params": model().parameters(), "lr": 0.1}])
    assert not any(group["fused"] for group in optimizer.param_groups)
    assert reasons == ["a parameter group chose fused or foreach"]
