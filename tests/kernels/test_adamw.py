# SPDX-License-Identifier: Apache-2.0
"""adamw: torch's AdamW step by step, the clip's factor, and rounding at random."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.kernels.closeness import EXAMPLES, assert_close
from turbo_hydra.kernels import adamw as module
from turbo_hydra.kernels.adamw import unfit
from turbo_hydra.kernels.clip_norm import clip_norm

HYPER = {"lr": 0.01, "beta1": 0.9, "beta2": 0.95, "weight_decay": 0.1, "eps": 1e-8}
Lists = list[list[torch.Tensor]]
# Called with lists and settings unpacked.
adamw: Callable[..., None] = module.adamw
adamw_plain: Callable[..., None] = module.adamw_plain


def state(
    sizes: list[int], draw: torch.Generator, dtype: torch.dtype = torch.float32, of_state: torch.dtype | None = None
) -> Lists:
    """Parameters, gradients and both moments, as after some steps."""
    lists: Lists = [[], [], [], []]
    for size in sizes:
        for number, of in enumerate((dtype, dtype, of_state or dtype, of_state or dtype)):
            item = torch.randn(size, device=draw.device, generator=draw)
            lists[number].append((item.square() if number == 3 else item).to(of))
    return lists


def copied(lists: Lists, dtype: torch.dtype | None = None) -> Lists:
    """The same numbers elsewhere."""
    return [[item.clone() if dtype is None else item.to(dtype, copy=True) for item in items] for items in lists]


@pytest.mark.parametrize("maximize", [False, True])
def test_steps_as_torch_takes_them(maximize: bool, draw: torch.Generator) -> None:
    sizes = [7, 2050, 1]
    leaves = [torch.randn(size, device=draw.device, generator=draw).requires_grad_() for size in sizes]
    ours = [leaf.detach().clone() for leaf in leaves]
    moments = [[torch.zeros_like(leaf) for leaf in ours] for _ in range(2)]
    torchs = torch.optim.AdamW(leaves, lr=0.01, betas=(0.9, 0.95), weight_decay=0.1, eps=1e-8, maximize=maximize)
    for step in range(1, 3):
        for leaf in leaves:
            leaf.grad = torch.randn(leaf.shape, device=draw.device, generator=draw)
        torchs.step()
        adamw(ours, [leaf.grad for leaf in leaves if leaf.grad is not None], *moments, step, maximize=maximize, **HYPER)
    for index, (leaf, mine) in enumerate(zip(leaves, ours, strict=True)):
        torch.testing.assert_close(mine, leaf.detach(), rtol=2e-6, atol=1e-6)
        torch.testing.assert_close(moments[0][index], torchs.state[leaf]["exp_avg"], rtol=2e-6, atol=1e-7)
        torch.testing.assert_close(moments[1][index], torchs.state[leaf]["exp_avg_sq"], rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize("of_state", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_no_further_from_the_exact_step_than_statement_by_statement(
    dtype: torch.dtype, of_state: torch.dtype, draw: torch.Generator
) -> None:
    lists = state([33, 5000], draw, dtype, of_state)
    library, exact = copied(lists), copied(lists, torch.float64)
    adamw(*lists, 5, **HYPER)
    adamw_plain(*library, 5, **HYPER)
    adamw_plain(*exact, 5, **HYPER)
    for number in (0, 2, 3):
        for three in zip(lists[number], library[number], exact[number], strict=True):
            assert_close(*three)


@EXAMPLES
@given(
    sizes=st.lists(st.integers(0, 60), min_size=1, max_size=5),
    dtypes=st.lists(st.sampled_from([torch.float32, torch.bfloat16]), min_size=5, max_size=5),
    offset=st.integers(0, 3),
)
def test_any_tensors(sizes: list[int], dtypes: list[torch.dtype], offset: int, device: torch.device) -> None:
    draw = torch.Generator(device).manual_seed(sum(sizes))
    parts = [state([size + offset], draw, dtype) for size, dtype in zip(sizes, dtypes, strict=False)]
    lists: Lists = [[part[number][0][offset:] for part in parts] for number in range(4)]
    library = copied(lists)
    factor = torch.full((), 0.25, device=device)
    adamw(*lists, 2, factor=factor, **HYPER)
    adamw_plain(*library, 2, factor=factor, **HYPER)
    for number in (0, 2, 3):
        for one, other in zip(lists[number], library[number], strict=True):
            torch.testing.assert_close(one, other)


def test_the_clips_factor_stands_for_clipped_gradients(draw: torch.Generator) -> None:
    lists = state([100, 5], draw)
    scaled = copied(lists)
    _, factor = clip_norm(lists[1], 0.5)
    assert factor.item() < 1
    adamw(*lists, 1, factor=factor, **HYPER)
    for grad in scaled[1]:
        grad.mul_(factor)
    adamw(*scaled, 1, **HYPER)
    torch.testing.assert_close(lists[0], scaled[0])


def test_gradients_are_left_as_they_are_and_writes_are_seen_by_autograd(draw: torch.Generator) -> None:
    lists = state([10], draw)
    grad = lists[1][0].clone()
    version = lists[0][0]._version
    adamw(*lists, 1, **HYPER)
    assert torch.equal(lists[1][0], grad)
    assert lists[0][0]._version > version


def test_what_is_not_finite(device: torch.device) -> None:
    numbers = torch.tensor([float("nan"), float("inf"), float("-inf"), 1e30, 1e-30], device=device)
    for seed in (None, 3):
        lists = [[torch.ones(5, device=device, dtype=torch.bfloat16)], [numbers.to(torch.bfloat16)]]
        lists += [[torch.zeros(5, device=device)] for _ in range(2)]
        library = copied(lists)
        adamw(*lists, 1, seed=seed, **HYPER)
        adamw_plain(*library, 1, **HYPER)
        torch.testing.assert_close(lists[0], library[0], equal_nan=True, rtol=8e-3, atol=8e-3)


def test_rounding_at_random_keeps_updates_too_small_to_see_on_average(device: torch.device) -> None:
    """A step of 0.001 from 1 is a quarter of what separates bf16 numbers below 1 (2^-8): to nearest it is lost."""
    size = 4096

    def after(seed: int | None) -> torch.Tensor:
        param = torch.ones(size, device=device, dtype=torch.bfloat16)
        grad = torch.ones(size, device=device, dtype=torch.bfloat16)
        moments = [torch.zeros(size, device=device) for _ in range(2)]
        hyper = {**HYPER, "lr": 0.001, "weight_decay": 0.0}
        adamw([param], [grad], [moments[0]], [moments[1]], 1, seed=seed, **hyper)
        return param

    assert after(None).unique().tolist() == [1.0]
    found = after(7)
    assert sorted(found.unique().tolist()) == [1 - 2**-8, 1.0]
    share = float((found < 1).double().mean())
    expected = 0.001 * 2**8
    assert abs(share - expected) < 5 * (expected * (1 - expected) / size) ** 0.5
    assert torch.equal(found, after(7))
    assert not torch.equal(found, after(8))


def test_refused_inputs_take_the_plain_path(draw: torch.Generator) -> None:
    lists = state([16], draw, torch.float64)
    assert unfit(*lists) == "float64"
    assert unfit([], [], [], []) == "no parameters"
    exact = copied(lists)
    adamw(*lists, 3, **HYPER)
    adamw_plain(*exact, 3, **HYPER)
    torch.testing.assert_close(lists[0], exact[0])
    square = [[torch.randn(4, 4, device=draw.device).t()] for _ in range(4)]
    assert unfit(*square) is not None
