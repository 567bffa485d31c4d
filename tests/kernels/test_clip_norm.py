# SPDX-License-Identifier: Apache-2.0
"""clip_norm: one norm of many tensors and its factor, against torch's own clipping and by hand."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.kernels.closeness import EXAMPLES
from turbo_hydra.kernels.clip_norm import clip_norm, clip_norm_plain, unfit


def test_by_hand(device: torch.device) -> None:
    norm, factor = clip_norm([torch.tensor([3.0], device=device), torch.tensor([[4.0]], device=device)], 1.0)
    assert (norm.dtype, norm.shape, norm.item()) == (torch.float32, (), 5.0)
    assert factor.item() == pytest.approx(0.2, rel=1e-6)
    assert clip_norm([torch.tensor([3.0], device=device)], 10.0)[1].item() == 1.0


@EXAMPLES
@given(
    shapes=st.lists(st.lists(st.integers(0, 40), max_size=3), min_size=1, max_size=6),
    dtypes=st.lists(st.sampled_from([torch.float32, torch.bfloat16, torch.float16]), min_size=6, max_size=6),
)
def test_any_tensors(shapes: list[list[int]], dtypes: list[torch.dtype], device: torch.device) -> None:
    draw = torch.Generator(device).manual_seed(len(shapes))
    tensors = [
        torch.randn(shape, device=device, generator=draw).to(dtype)
        for shape, dtype in zip(shapes, dtypes, strict=False)
    ]
    exact = sum(float(tensor.double().square().sum()) for tensor in tensors) ** 0.5
    norm, factor = clip_norm(tensors, 1.0)
    assert norm.item() == pytest.approx(exact, rel=1e-6, abs=1e-30)
    assert factor.item() == pytest.approx(min(1.0, 1.0 / (exact + 1e-6)), rel=1e-6)


def test_as_torch_clips(draw: torch.Generator) -> None:
    leaves = [torch.zeros(size, device=draw.device, requires_grad=True) for size in (5, 70001, 3)]
    for leaf in leaves:
        leaf.grad = torch.randn(leaf.shape, device=draw.device, generator=draw)
    grads = [leaf.grad.clone() for leaf in leaves if leaf.grad is not None]
    norm, factor = clip_norm(grads, 2.0)
    expected = torch.nn.utils.clip_grad_norm_(leaves, 2.0)
    torch.testing.assert_close(norm, expected)
    for leaf, grad in zip(leaves, grads, strict=True):
        torch.testing.assert_close(grad * factor, leaf.grad)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")], ids=str)
def test_what_is_not_finite_is_as_torch_has_it(value: float, device: torch.device) -> None:
    tensors = [torch.ones(3, device=device), torch.tensor([1.0, value], device=device)]
    for found, library in zip(clip_norm(tensors, 1.0), clip_norm_plain(tensors, 1.0), strict=True):
        torch.testing.assert_close(found, library, equal_nan=True)


@pytest.mark.parametrize("scale", [1e-15, 1e15], ids=str)
def test_tiny_and_large_inputs(scale: float, draw: torch.Generator) -> None:
    tensors = [torch.randn(1000, device=draw.device, generator=draw) * scale]
    norm, _ = clip_norm(tensors, 1.0)
    assert norm.item() == pytest.approx(float(tensors[0].double().norm()), rel=1e-6)


def test_tensors_that_do_not_begin_at_16_bytes(draw: torch.Generator) -> None:
    flat = torch.randn(5001, device=draw.device, generator=draw).to(torch.bfloat16)
    norm, _ = clip_norm([flat[1:], flat[3:]], 1.0)
    exact = float(flat[1:].double().square().sum() + flat[3:].double().square().sum()) ** 0.5
    assert norm.item() == pytest.approx(exact, rel=1e-6)


def test_the_same_sum_at_each_call_and_new_numbers_after_a_write(draw: torch.Generator) -> None:
    tensors = [torch.randn(size, device=draw.device, generator=draw) for size in (4097, 12, 1)]
    first = clip_norm(tensors, 1.0)[0]
    assert torch.equal(first, clip_norm(tensors, 1.0)[0])
    tensors[1].zero_()
    assert clip_norm(tensors, 1.0)[0] < first
    assert torch.equal(clip_norm([item.clone() for item in tensors], 1.0)[0], clip_norm(tensors, 1.0)[0])


def test_refused_inputs_take_the_plain_path(draw: torch.Generator) -> None:
    square = torch.randn(4, 4, device=draw.device, generator=draw)
    for tensors in ([], [square.t()], [square.double()], [square, square.double()]):
        assert unfit(tensors) is not None
        norm, _ = clip_norm(tensors, 1.0)
        assert norm.item() == pytest.approx(float(sum(item.double().square().sum() for item in tensors)) ** 0.5)
