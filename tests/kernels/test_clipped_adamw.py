# SPDX-License-Identifier: Apache-2.0
"""Clipping that waits for AdamW's step: the same training as torch's, whatever comes between the two."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from tests.kernels.closeness import EXAMPLES, assert_close
from tests.kernels.interpreting import DEVICE
from turbo_hydra.catalogs.shared import clipped_adamw

SHAPES = [(3, 5), (7,), (), (2, 1, 4)]
SETTINGS: dict[str, Any] = {"lr": 0.02, "betas": (0.9, 0.95), "weight_decay": 0.1}
Said = list[str]


@contextmanager
def replaced() -> Iterator[Said]:
    """Put the three replacements in place; what they fell back for is collected."""
    said: Said = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clipped_adamw, "_STATE", clipped_adamw._State())
        patch.setattr(clipped_adamw, "fallback", said.append)
        clip = torch.nn.utils.clip_grad
        patch.setattr(clip, "_get_total_norm", clipped_adamw.total_norm(clip._get_total_norm, None))
        patch.setattr(clip, "_clip_grads_with_norm_", clipped_adamw.scale(clip._clip_grads_with_norm_, None))
        steps = importlib.import_module("torch.optim.adam")  # torch takes the module out of its package
        patch.setattr(steps, "adam", clipped_adamw.adam(steps.adam, None))
        yield said


def made(dtype: torch.dtype = torch.float32, shapes: Sequence[tuple[int, ...]] = SHAPES) -> list[nn.Parameter]:
    draw = torch.Generator().manual_seed(2)
    return [nn.Parameter(torch.randn(shape, generator=draw).to(DEVICE, dtype)) for shape in shapes]


def give(parameters: Sequence[nn.Parameter], number: int, scale: float = 1.0) -> None:
    """Gradients, the same for the same number."""
    draw = torch.Generator().manual_seed(100 + number)
    for item in parameters:
        item.grad = (torch.randn(item.shape, generator=draw) * scale).to(item.device, item.dtype)


def trained(parameters: list[nn.Parameter], steps: int = 4, limit: float = 1.0, **settings: Any) -> list[Tensor]:
    """Parameters after some steps, every second one with gradients below the limit."""
    optimizer = torch.optim.AdamW(parameters, **{**SETTINGS, **settings})
    for number in range(steps):
        give(parameters, number, 1.0 if number % 2 else 1e-3)
        nn.utils.clip_grad_norm_(parameters, limit)
        optimizer.step()
        optimizer.zero_grad()
    return [item.detach() for item in parameters]


@pytest.mark.parametrize("fused", [None, True])
@pytest.mark.parametrize("maximize", [False, True])
def test_training_is_torchs_and_scales_nothing_after_the_first_step(fused: bool | None, maximize: bool) -> None:
    expected = trained(made(), fused=fused, maximize=maximize)
    with replaced() as said:
        found = trained(made(), fused=fused, maximize=maximize)
    assert said == ["not stepped by the kernel before"]
    for mine, reference in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, reference, rtol=5e-6, atol=1e-6)


def test_low_precision_is_no_further_from_the_exact_training_than_torchs() -> None:
    shapes = [(40, 50), (300,)]
    library = trained(made(torch.bfloat16, shapes), fused=True)
    # The same numbers to begin with: parameters and gradients that bfloat16 holds.
    exact = [nn.Parameter(item.detach().double()) for item in made(torch.bfloat16, shapes)]
    optimizer = torch.optim.AdamW(exact, **SETTINGS)
    for number in range(4):
        low = made(torch.bfloat16, shapes)
        give(low, number, 1.0 if number % 2 else 1e-3)
        for item, of in zip(exact, low, strict=True):
            assert of.grad is not None
            item.grad = of.grad.double()
        nn.utils.clip_grad_norm_(exact, 1.0)
        optimizer.step()
    with replaced():
        found = trained(made(torch.bfloat16, shapes), fused=True)
    for mine, reference, truth in zip(found, library, exact, strict=True):
        assert_close(mine, reference, truth.detach())


def clipped_before_the_second_step(parameters: Sequence[nn.Parameter], optimizer: torch.optim.Optimizer) -> None:
    """The first step is the kernel's; the second one's gradients are clipped, and wait for it."""
    for number in range(2):
        give(parameters, number)
        nn.utils.clip_grad_norm_(parameters, 0.5)
        if number == 0:
            optimizer.step()


def test_gradients_wait_as_backward_left_them() -> None:
    parameters = made()
    optimizer = torch.optim.AdamW(parameters, **SETTINGS)
    with replaced():
        for number in range(2):
            give(parameters, number)
            before = [item.grad.clone() for item in parameters if item.grad is not None]
            nn.utils.clip_grad_norm_(parameters, 0.5)
            same = [torch.equal(item.grad, old) for item, old in zip(parameters, before, strict=True)]  # type: ignore[arg-type]
            assert same == [number == 1] * len(parameters)
            optimizer.step()


@pytest.mark.parametrize(
    "change",
    [
        lambda gradient: gradient.mul_(2.0),
        lambda gradient: gradient.zero_(),
    ],
)
@pytest.mark.parametrize("then", ["step", "clip"])
def test_what_changes_gradients_in_between_is_told(change: Callable[[Tensor], Tensor], then: str) -> None:
    parameters = made()
    optimizer = torch.optim.AdamW(parameters, **SETTINGS)
    with replaced():
        clipped_before_the_second_step(parameters, optimizer)
        assert parameters[1].grad is not None
        change(parameters[1].grad)
        with pytest.raises(clipped_adamw.ChangedGradients, match="switch that group off for this script"):
            optimizer.step() if then == "step" else nn.utils.clip_grad_norm_(parameters, 0.5)


def test_a_gradient_that_is_exchanged_in_between_is_told() -> None:
    parameters = made()
    optimizer = torch.optim.AdamW(parameters, **SETTINGS)
    with replaced():
        clipped_before_the_second_step(parameters, optimizer)
        assert parameters[2].grad is not None
        parameters[2].grad = parameters[2].grad * 3
        with pytest.raises(clipped_adamw.ChangedGradients):
            optimizer.step()


Action = tuple[str, int]
ACTIONS = st.one_of(
    st.tuples(st.just("gradients"), st.integers(0, 50)),
    st.tuples(st.just("clip"), st.integers(0, 3)),
    st.tuples(st.sampled_from(["step", "drop", "load", "amsgrad", "coupled", "rate"]), st.just(0)),
)


def played(actions: list[Action], fused: bool | None, groups: int) -> list[Tensor]:
    """A script that does these things in turn."""
    parameters = made()
    optimizer = torch.optim.AdamW(
        [{"params": parameters[start::groups]} for start in range(groups)], **SETTINGS, fused=fused
    )
    for what, number in actions:
        if what == "gradients":
            give(parameters, number)
        elif what == "clip":
            nn.utils.clip_grad_norm_(parameters, (1e-3, 0.5, 2.0, 1e6)[number])
        elif what == "step":
            optimizer.step()
        elif what == "drop":
            optimizer.zero_grad()
        elif what == "load":
            optimizer.load_state_dict(optimizer.state_dict())
        elif what == "amsgrad" and not optimizer.state:
            optimizer.param_groups[0]["amsgrad"] = True
        elif what == "coupled":  # Adam's weight decay, which the kernel does not have
            for group in optimizer.param_groups:
                group["decoupled_weight_decay"] = not group["decoupled_weight_decay"]
        elif what == "rate":
            for group in optimizer.param_groups:
                group["lr"] *= 0.5
    return [item.detach() for item in parameters]


def steps_with_others_than_were_clipped(actions: list[Action]) -> bool:
    """Whether gradients are exchanged between a clip and a step without being clipped again: that is refused."""
    clipped = exchanged = False
    for what, _ in actions:
        if what == "clip":
            clipped, exchanged = True, False
        elif what == "gradients":
            exchanged = clipped
        elif what == "step":
            if exchanged:
                return True
            clipped = False
    return False


@EXAMPLES
@given(actions=st.lists(ACTIONS, max_size=14), fused=st.sampled_from([None, True]), groups=st.integers(1, 2))
def test_whatever_a_script_does_in_turn(actions: list[Action], fused: bool | None, groups: int) -> None:
    expected = played(actions, fused, groups)
    with replaced():
        try:
            found = played(actions, fused, groups)
        except clipped_adamw.ChangedGradients:
            assert steps_with_others_than_were_clipped(actions)
            return
    for mine, reference in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, reference, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("settings", [{"amsgrad": True}, {"capturable": True}, {"lr": torch.tensor(0.02)}])
def test_steps_that_the_kernel_does_not_take_are_torchs_bit_by_bit(settings: dict[str, Any]) -> None:
    if settings.get("capturable") and DEVICE == "cpu":
        pytest.skip("capturable steps need a device that captures")
    expected = trained(made(), **settings)
    with replaced() as said:
        found = trained(made(), **settings)
    assert len(said) == 8
    assert all(torch.equal(mine, reference) for mine, reference in zip(found, expected, strict=True))


def test_adam_is_not_adamw() -> None:
    def run() -> list[Tensor]:
        parameters = made()
        optimizer = torch.optim.Adam(parameters, lr=0.02, weight_decay=0.1)
        for number in range(3):
            give(parameters, number)
            nn.utils.clip_grad_norm_(parameters, 0.5)
            optimizer.step()
        return [item.detach() for item in parameters]

    expected = run()
    with replaced() as said:
        found = run()
    assert set(said) == {"not AdamW", "not stepped by the kernel before"}
    assert all(torch.equal(mine, reference) for mine, reference in zip(found, expected, strict=True))


def test_a_second_optimizer_takes_its_share_of_the_factor() -> None:
    def run() -> list[Tensor]:
        parameters = made()
        optimizers = [torch.optim.AdamW(part, **SETTINGS) for part in (parameters[:2], parameters[2:])]
        for number in range(3):
            give(parameters, number)
            nn.utils.clip_grad_norm_(parameters, 0.5)
            for optimizer in optimizers:
                optimizer.step()
        return [item.detach() for item in parameters]

    expected = run()
    with replaced() as said:
        found = run()
    assert said == ["not stepped by the kernel before"]
    for mine, reference in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, reference, rtol=5e-6, atol=1e-6)
