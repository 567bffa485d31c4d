# SPDX-License-Identifier: Apache-2.0
"""gelu_tanh_bias: result, gradient and the bias's gradient, against the library's path and float64."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.kernels.closeness import DTYPES, EXAMPLES, hold, normal, outputs_and_gradients
from turbo_hydra.kernels.gelu_tanh_bias import gelu_tanh_bias, gelu_tanh_bias_plain, unfit


@pytest.mark.parametrize("dtype", [*DTYPES, torch.float64], ids=str)
@pytest.mark.parametrize("shape", [(2, 9, 33), (1, 1), (2, 1031), (35, 5)], ids=str)
def test_no_further_from_the_exact_result_than_the_library(
    dtype: torch.dtype, shape: tuple[int, ...], draw: torch.Generator
) -> None:
    hold(
        gelu_tanh_bias, gelu_tanh_bias_plain, [normal(draw, *shape, dtype=dtype), normal(draw, shape[-1], dtype=dtype)]
    )


@pytest.mark.parametrize("shape", [(0, 8), (2, 0)], ids=str)
def test_empty(shape: tuple[int, ...], draw: torch.Generator) -> None:
    leaves = [normal(draw, *shape), normal(draw, shape[-1])]
    for found, leaf in zip(list(outputs_and_gradients(gelu_tanh_bias, leaves).values())[1:], leaves, strict=True):
        assert found.shape == leaf.shape
        assert not found.any()


def test_tiny_large_and_not_finite_inputs(device: torch.device) -> None:
    numbers = [1e-30, -1e-30, 1e4, -1e4, 1e30, float("inf"), float("-inf"), float("nan")]
    x = torch.tensor(numbers, device=device).repeat(3, 1)
    bias = torch.zeros(len(numbers), device=device)
    torch.testing.assert_close(gelu_tanh_bias(x, bias), gelu_tanh_bias_plain(x, bias), equal_nan=True)


def test_the_sum_over_many_rows_is_not_rounded_on_the_way(draw: torch.Generator) -> None:
    # In bf16 a sum of ones stops growing at 256.
    x = torch.full((600, 2), 40.0, device=draw.device, dtype=torch.bfloat16)
    bias = torch.zeros(2, device=draw.device, dtype=torch.bfloat16, requires_grad=True)
    (found,) = torch.autograd.grad(gelu_tanh_bias(x, bias).sum(), bias)
    assert found.tolist() == [600.0, 600.0]


@EXAMPLES
@given(rows=st.integers(1, 20), width=st.integers(1, 40), gap=st.integers(0, 3), transposed=st.booleans())
def test_any_shape_and_stride(rows: int, width: int, gap: int, transposed: bool, device: torch.device) -> None:
    draw = torch.Generator(device).manual_seed(rows * width)
    base = normal(draw, width, rows).detach().t() if transposed else normal(draw, rows, width + gap).detach()[:, gap:]
    bias = normal(draw, 2 * width).detach()[::2].requires_grad_()
    hold(gelu_tanh_bias, gelu_tanh_bias_plain, [base.requires_grad_(), bias], factor=2.0)


def test_gradients_by_differences(draw: torch.Generator) -> None:
    leaves = (normal(draw, 3, 4, dtype=torch.float64), normal(draw, 4, dtype=torch.float64))
    assert torch.autograd.gradcheck(gelu_tanh_bias, leaves)


def test_refused_inputs_take_the_plain_path(draw: torch.Generator) -> None:
    x = torch.randn(3, 4, device=draw.device)
    for bias in (torch.randn(1, device=draw.device), torch.randn(4, device=draw.device).double()):
        assert unfit(x, bias) is not None
        assert torch.equal(gelu_tanh_bias(x, bias), gelu_tanh_bias_plain(x, bias))
