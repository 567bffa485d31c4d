# SPDX-License-Identifier: Apache-2.0
"""Moments in float32: the step is that of float32 parameters, rounded each time."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.openpi.small import applied
from turbo_hydra.catalogs.models.openpi import fp32_optimizer_state

ID = "openpi.fp32_optimizer_state"
SHAPES = [(3, 4), (7,), (2, 1, 5)]
SETTINGS: list[dict[str, Any]] = [
    {},
    {"foreach": True},
    {"fused": True},
    {"amsgrad": True},
    {"maximize": True, "weight_decay": 0.1},
]


def parameters(*dtypes: torch.dtype) -> list[Tensor]:
    torch.manual_seed(0)
    return [torch.randn(shape).to(dtype).requires_grad_() for shape, dtype in zip(SHAPES, dtypes, strict=True)]


def gradients(number: int, dtypes: list[torch.dtype]) -> list[Tensor]:
    torch.manual_seed(100 + number)
    return [torch.randn(shape).to(dtype) for shape, dtype in zip(SHAPES, dtypes, strict=True)]


def stepped(held: list[Tensor], optimizer: torch.optim.Optimizer, numbers: range, low: list[torch.dtype]) -> None:
    """Steps with the gradients that parameters of the types `low` would have; they are rounded after each step."""
    for number in numbers:
        for parameter, gradient in zip(held, gradients(number, low), strict=True):
            parameter.grad = gradient.to(parameter.dtype)
        optimizer.step()
        with torch.no_grad():
            for parameter, dtype in zip(held, low, strict=True):
                parameter.copy_(parameter.to(dtype))


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("part", [2**30, 1], ids=["one part", "a part for each"])
def test_the_step_is_that_of_float32_rounded(
    settings: dict[str, Any], part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    low = [torch.bfloat16, torch.float16, torch.float32]
    monkeypatch.setattr(fp32_optimizer_state, "PART_BYTES", part)
    wide = parameters(*low)
    for parameter in wide:
        parameter.data = parameter.data.float()
    stepped(wide, torch.optim.AdamW(wide, lr=0.05, **settings), range(6), low)
    held = parameters(*low)
    with applied({ID: {}}):
        optimizer = torch.optim.AdamW(held, lr=0.05, **settings)
        stepped(held, optimizer, range(6), low)
    for parameter, expected in zip(held, wide, strict=True):
        torch.testing.assert_close(parameter.float(), expected, rtol=0, atol=0)
        moments = [value for name, value in optimizer.state[parameter].items() if name != "step"]
        assert len(moments) == 2 + bool(settings.get("amsgrad"))
        assert {moment.dtype for moment in moments} == {torch.float32}


def test_a_second_moment_decays_where_bfloat16_holds_it() -> None:
    def second_moment() -> float:
        parameter = torch.zeros(1, dtype=torch.bfloat16, requires_grad=True)
        optimizer = torch.optim.AdamW([parameter], lr=0.0)
        for gradient in [1.0] + [0.0] * 500:
            parameter.grad = torch.full((1,), gradient, dtype=torch.bfloat16)
            optimizer.step()
        return float(optimizer.state[parameter]["exp_avg_sq"])

    plain = second_moment()
    with applied({ID: {}}):
        found = second_moment()
    # By hand: (1 - beta2) after the first step, times beta2 in each of the others.
    expected = 1e-3 * 0.999**500
    assert found == pytest.approx(expected, rel=1e-4)
    assert plain > 1.5 * expected


def test_float32_parameters_and_differentiable_steps_are_as_they_were() -> None:
    low = [torch.float32] * 3
    plain, held = parameters(*low), parameters(*low)
    stepped(plain, torch.optim.AdamW(plain, lr=0.05), range(3), low)
    with applied({ID: {}}):
        stepped(held, torch.optim.AdamW(held, lr=0.05), range(3), low)
        differentiable = torch.optim.AdamW([torch.ones(2, dtype=torch.bfloat16)], differentiable=True)
        (parameter,) = differentiable.param_groups[0]["params"]
        parameter.grad = torch.ones_like(parameter)
        differentiable.step()
        assert differentiable.state[parameter]["exp_avg"].dtype is torch.bfloat16
    assert all(torch.equal(one, other) for one, other in zip(plain, held, strict=True))


def test_a_checkpoint_is_read_whoever_wrote_it() -> None:
    low = [torch.bfloat16] * 3
    written = parameters(*low)
    optimizer = torch.optim.AdamW(written, lr=0.05)
    stepped(written, optimizer, range(2), low)
    read = [parameter.detach().clone().requires_grad_() for parameter in written]
    with applied({ID: {}}):
        resumed = torch.optim.AdamW(read, lr=0.05)
        resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        stepped(read, resumed, range(2, 3), low)
        assert all(state["exp_avg"].dtype is torch.float32 for state in resumed.state.values())
        assert all(state["step"] == 3 for state in resumed.state.values())
