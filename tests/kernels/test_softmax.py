# SPDX-License-Identifier: Apache-2.0
"""softmax with scale and mask: short and long rows, each kind of mask, against the library's path and float64."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.kernels.closeness import DTYPES, EXAMPLES, Function, hold, normal
from turbo_hydra.kernels import softmax as module
from turbo_hydra.kernels.softmax import softmax, softmax_plain, unfit

# The backward starts from the rounded result, the library's from a float32 one: with 16 bits two roundings meet.
GRADIENT = 2.0


def hold_masked(
    scores: torch.Tensor, mask: torch.Tensor | None, scale: float = 1.0, gradient: float = GRADIENT
) -> None:
    """Compare kernel and library, the mask's numbers being exact in all."""

    def through(function: Function) -> Function:
        return lambda x: function(x, mask, scale)

    hold(through(softmax), through(softmax_plain), [scores], gradient=gradient)


def additive(draw: torch.Generator, *shape: int) -> torch.Tensor:
    """A mask as models make it: 0, or a number near the lowest of float32; the first key is always seen."""
    mask = torch.where(torch.rand(shape, device=draw.device, generator=draw) < 0.3, -2.3819763e38, 0.0)
    mask[..., 0] = 0.0
    return mask


@pytest.mark.parametrize("dtype", [*DTYPES, torch.float64], ids=str)
@pytest.mark.parametrize("kind", ["none", "additive", "boolean"])
@pytest.mark.parametrize("shape", [(2, 2, 3, 17), (1, 2, 2, 64), (2, 1, 1, 978)], ids=str)
def test_no_further_from_the_exact_result_than_the_library(
    dtype: torch.dtype, kind: str, shape: tuple[int, int, int, int], draw: torch.Generator
) -> None:
    batch, _, queries, keys = shape
    mask = None if kind == "none" else additive(draw, batch, 1, queries, keys)
    hold_masked(
        normal(draw, *shape, dtype=dtype, scale=3.0),
        mask == 0 if mask is not None and kind == "boolean" else mask,
        0.25,
    )


@pytest.mark.parametrize("kind", ["none", "additive", "boolean"])
def test_rows_longer_than_a_block(kind: str, draw: torch.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_ONE", 16)
    monkeypatch.setattr(module, "launch", lambda *_: {"ROWS": 2, "BLOCK": 16, "num_warps": 1})
    mask = None if kind == "none" else additive(draw, 2, 1, 3, 53)
    if mask is not None:
        mask[..., 0] = -2.3819763e38  # whole blocks without a key, the first one too
        mask[..., :32] = -2.3819763e38
        mask[..., 40] = 0.0
    hold_masked(normal(draw, 2, 2, 3, 53), mask == 0 if mask is not None and kind == "boolean" else mask, 0.5)


@pytest.mark.parametrize("shape", [(5,), (1, 5), (3, 1), (2, 1, 1, 5), (1, 2, 3, 5), (3, 5), (1,)], ids=str)
def test_masks_are_broadcast(shape: tuple[int, ...], draw: torch.Generator) -> None:
    scores = normal(draw, 2, 2, 3, 5)
    hold_masked(scores, normal(draw, *shape).detach())
    hold_masked(scores, normal(draw, *shape).detach() > -5.0)


def test_a_mask_of_other_strides(draw: torch.Generator) -> None:
    hold_masked(normal(draw, 2, 4, 3, 5), normal(draw, 2, 1, 5, 3).detach().transpose(2, 3))
    hold_masked(normal(draw, 2, 4, 3, 5), normal(draw, 2, 1, 3, 12).detach()[..., 1:6])


@pytest.mark.parametrize("scale", [1e-30, 1e4, 1e30], ids=str)
def test_tiny_and_large_inputs(scale: float, draw: torch.Generator) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        hold_masked(normal(draw, 3, 33, dtype=dtype, scale=scale), None)


def test_what_is_not_finite_is_as_the_library_has_it(device: torch.device) -> None:
    inf, nan = float("inf"), float("nan")
    rows = [[inf, 1.0, 2.0], [-inf, 1.0, 2.0], [-inf, -inf, -inf], [nan, 1.0, 2.0], [1.0, 2.0, 3.0]]
    scores = torch.tensor(rows, device=device)
    torch.testing.assert_close(softmax(scores), softmax_plain(scores), equal_nan=True)
    seen = torch.tensor([[False] * 3, [True, False, False]], device=device)
    torch.testing.assert_close(softmax(scores[3:], seen), softmax_plain(scores[3:], seen), equal_nan=True)


def test_a_row_that_sees_nothing_but_equal_masks_is_uniform(device: torch.device) -> None:
    mask = torch.full((1, 1, 1, 4), -2.3819763e38, device=device)
    found = softmax(torch.tensor([[[[1.0, 2.0, 3.0, 4.0]]]], device=device), mask)
    assert found.tolist() == [[[[0.25] * 4]]]


@pytest.mark.parametrize("shape", [(0, 5), (3, 0)], ids=str)
def test_empty(shape: tuple[int, ...], draw: torch.Generator) -> None:
    scores = normal(draw, *shape)
    out = softmax(scores)
    (gradient,) = torch.autograd.grad(out.sum(), scores)
    assert out.shape == gradient.shape == shape


@EXAMPLES
@given(
    shape=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    transposed=st.booleans(),
    masked=st.booleans(),
    broadcast=st.lists(st.booleans(), min_size=4, max_size=4),
)
def test_any_shape_and_stride(
    shape: list[int], transposed: bool, masked: bool, broadcast: list[bool], device: torch.device
) -> None:
    draw = torch.Generator(device).manual_seed(sum(shape))
    scores = normal(draw, *reversed(shape)).detach().permute(*reversed(range(len(shape)))) if transposed else None
    scores = normal(draw, *shape).detach() if scores is None else scores
    mask = normal(draw, *(1 if one else size for one, size in zip(broadcast, shape, strict=False))).detach()
    # Of a few elements one that is unlucky is much: seen at most 3.7 times the library's error, in float32 on an H200.
    hold_masked(scores.requires_grad_(), mask if masked else None, gradient=4.0)


def test_gradients_by_differences(draw: torch.Generator) -> None:
    scores = normal(draw, 1, 2, 2, 5, dtype=torch.float64)
    mask = normal(draw, 1, 1, 2, 5, dtype=torch.float64).detach()
    assert torch.autograd.gradcheck(lambda x: softmax(x, mask, 0.5), (scores,), fast_mode=True)


def test_refused_inputs_take_the_plain_path(draw: torch.Generator) -> None:
    scores = normal(draw, 2, 3)
    mask = normal(draw, 2, 3)
    assert unfit(scores, mask) == "the mask needs a gradient"
    (found,) = torch.autograd.grad(softmax(scores, mask).square().sum(), mask)
    assert found.any()
    assert unfit(scores, torch.ones(3, 2, 3, device=draw.device)) is not None
    assert unfit(normal(draw, 1, 1, 1, 2, 3), torch.ones(3, device=draw.device)) is not None
