# SPDX-License-Identifier: Apache-2.0
"""rope: rotation of queries and keys against complex numbers, the library's path and float64."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.kernels.closeness import DTYPES, EXAMPLES, hold, normal
from turbo_hydra.kernels.rope import rope, rope_plain, unfit


def angles(batch: int, length: int, size: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin as models make them: the same for both halves."""
    positions = torch.arange(length, device=device) + 3.0 * torch.arange(batch, device=device)[:, None]
    frequencies = 100.0 ** -(torch.arange(0, size, 2, device=device) / max(size, 1))
    angle = (positions[..., None] * frequencies).repeat(1, 1, 2)
    return angle.cos(), angle.sin()


@pytest.mark.parametrize("dtype", [*DTYPES, torch.float64], ids=str)
@pytest.mark.parametrize("heads", [(8, 1), (3, 3), (5, 2)], ids=str)
@pytest.mark.parametrize("cos_batch", [1, 2])
def test_no_further_from_the_exact_result_than_the_library(
    dtype: torch.dtype, heads: tuple[int, int], cos_batch: int, draw: torch.Generator
) -> None:
    q, k = (normal(draw, 2, count, 2, 12, dtype=dtype) for count in heads)
    cos, sin = (item.to(dtype) for item in angles(cos_batch, 2, 12, draw.device))
    hold(rope, rope_plain, [q, k, cos, sin])


def test_it_is_a_product_of_complex_numbers(draw: torch.Generator) -> None:
    q, k = (normal(draw, 1, 2, 4, 6, dtype=torch.float64) for _ in range(2))
    cos, sin = (item.double() for item in angles(1, 4, 6, draw.device))
    turned, _ = rope(q, k, cos, sin)
    expected = torch.complex(q[..., :3], q[..., 3:]) * torch.complex(cos[..., :3], sin[..., :3])
    torch.testing.assert_close(turned, torch.cat((expected.real, expected.imag), dim=-1))


def test_halves_with_different_angles(draw: torch.Generator) -> None:
    q, k = normal(draw, 2, 2, 3, 8), normal(draw, 2, 1, 3, 8)
    cos, sin = normal(draw, 2, 3, 8).detach(), normal(draw, 2, 3, 8).detach()
    hold(rope, rope_plain, [q, k, cos, sin])


def test_results_have_the_strides_of_their_inputs(draw: torch.Generator) -> None:
    q, k = (normal(draw, 2, 3, count, 8).transpose(1, 2) for count in (4, 1))
    for turned, item in zip(rope(q, k, *angles(2, 3, 8, draw.device)), (q, k), strict=True):
        assert turned.stride() == item.stride()


def test_in_place_only_where_no_gradient_is_recorded(draw: torch.Generator) -> None:
    q, k = normal(draw, 2, 2, 3, 8), normal(draw, 2, 1, 3, 8)
    cos, sin = angles(2, 3, 8, draw.device)
    before = q.detach().clone()
    expected = rope_plain(q, k, cos, sin)
    turned, _ = rope(q, k, cos, sin, in_place=True)
    assert turned.data_ptr() != q.data_ptr()
    assert torch.equal(q, before)
    with torch.no_grad():
        turned, turned_k = rope(q, k, cos, sin, in_place=True)
    assert (turned.data_ptr(), turned_k.data_ptr()) == (q.data_ptr(), k.data_ptr())
    torch.testing.assert_close(q, expected[0])
    torch.testing.assert_close(k, expected[1])


def test_elements_that_share_a_place_are_not_overwritten(draw: torch.Generator) -> None:
    q = normal(draw, 1, 1, 3, 8).detach().expand(2, 2, 3, 8)
    k = normal(draw, 2, 1, 3, 8).detach()
    cos, sin = angles(1, 3, 8, draw.device)
    turned, _ = rope(q, k, cos, sin, in_place=True)
    torch.testing.assert_close(turned, rope_plain(q, k, cos, sin)[0])


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 3e38, 1e-40], ids=str)
def test_unusual_numbers(value: float, draw: torch.Generator) -> None:
    q, k = normal(draw, 1, 2, 2, 4).detach(), normal(draw, 1, 1, 2, 4).detach()
    q[0, 1, 1, 2] = value
    cos, sin = angles(1, 2, 4, draw.device)
    for found, library in zip(rope(q, k, cos, sin), rope_plain(q, k, cos, sin), strict=True):
        torch.testing.assert_close(found, library, equal_nan=True)


@pytest.mark.parametrize("shape", [(0, 2, 3, 4), (2, 0, 3, 4), (2, 2, 0, 4), (2, 2, 3, 0)], ids=str)
def test_empty(shape: tuple[int, int, int, int], draw: torch.Generator) -> None:
    q, k = normal(draw, *shape), normal(draw, *shape)
    cos = torch.ones(1, shape[2], shape[3], device=draw.device)
    q_out, k_out = rope(q, k, cos, cos)
    assert q_out.shape == k_out.shape == shape
    torch.autograd.grad(q_out.sum() + k_out.sum(), (q, k))


@EXAMPLES
@given(
    batch=st.integers(1, 2), heads=st.integers(1, 5), length=st.integers(1, 2), half=st.integers(1, 9),
    transposed=st.booleans(), gap=st.integers(0, 2),
)  # fmt: skip
def test_any_shape_and_stride(
    batch: int, heads: int, length: int, half: int, transposed: bool, gap: int, device: torch.device
) -> None:
    draw = torch.Generator(device).manual_seed(heads * half)
    size = 2 * half
    wide = normal(draw, batch, length, heads, size + gap).detach()[..., gap:].transpose(1, 2)
    q = wide if transposed else wide.contiguous()
    k = normal(draw, batch, 1, size, length).detach().transpose(2, 3)
    hold(rope, rope_plain, [q.requires_grad_(), k.requires_grad_(), *angles(1, length, size, device)])


def test_gradients_by_differences(draw: torch.Generator) -> None:
    q, k = normal(draw, 1, 2, 2, 4, dtype=torch.float64), normal(draw, 1, 1, 2, 4, dtype=torch.float64)
    cos, sin = (item.double() for item in angles(1, 2, 4, draw.device))
    assert torch.autograd.gradcheck(lambda *leaves: rope(leaves[0], leaves[1], cos, sin), (q, k), fast_mode=True)


def test_refused_inputs_take_the_plain_path(draw: torch.Generator) -> None:
    q, k = normal(draw, 2, 2, 3, 8), normal(draw, 2, 1, 3, 8)
    cos, sin = angles(2, 3, 8, draw.device)
    assert unfit(q, k, cos.clone().requires_grad_(), sin) == "cos or sin needs a gradient"
    assert unfit(q, k, cos[0], sin[0]) == "cos and sin are not [batch or 1, length, size]"
    assert unfit(q, k.double(), cos, sin) == "q and k, or cos and sin, differ in dtype"
    found = rope(q, k.double(), cos, sin)
    torch.testing.assert_close(found, rope_plain(q, k.double(), cos, sin))
