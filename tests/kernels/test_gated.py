# SPDX-License-Identifier: Apache-2.0
"""geglu and swiglu: the library's result within its own error, bitwise where that is asked for."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.kernels.closeness import DTYPES, EXAMPLES, Function, copies, hold, normal, outputs_and_gradients
from turbo_hydra.kernels import geglu, swiglu
from turbo_hydra.kernels.gated import tables

PAIRS = {"geglu": (geglu.geglu, geglu.geglu_plain), "swiglu": (swiglu.swiglu, swiglu.swiglu_plain)}
both = pytest.mark.parametrize(("kernel", "plain"), PAIRS.values(), ids=PAIRS)


@both
@pytest.mark.parametrize("dtype", [*DTYPES, torch.float64], ids=str)
@pytest.mark.parametrize("shape", [(5, 7, 33), (1, 1), (3, 4096), (4099,), (0, 8), (2, 0)], ids=str)
def test_no_further_from_the_exact_result_than_the_library(
    kernel: Function, plain: Function, dtype: torch.dtype, shape: tuple[int, ...], draw: torch.Generator
) -> None:
    hold(kernel, plain, [normal(draw, *shape, dtype=dtype) for _ in range(2)])


@both
@pytest.mark.parametrize("scale", [1e-30, 1e-3, 30.0, 1e4], ids=str)
def test_tiny_and_large_inputs(kernel: Function, plain: Function, scale: float, draw: torch.Generator) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        hold(kernel, plain, [normal(draw, 3, 65, dtype=dtype, scale=scale) for _ in range(2)])


@both
def test_what_is_not_finite(kernel: Function, plain: Function, device: torch.device) -> None:
    gate = torch.tensor([float("nan"), float("inf"), float("-inf"), 1e30, -1e30, 3.4e38, 0.0], device=device)
    up = torch.ones_like(gate)
    torch.testing.assert_close(kernel(gate, up), plain(gate, up), equal_nan=True)
    torch.testing.assert_close(kernel(up, gate), plain(up, gate), equal_nan=True)


@both
def test_gradient_where_the_library_overflows(kernel: Function, plain: Function, device: torch.device) -> None:
    gate = torch.tensor([1e25, -1e25], device=device, requires_grad=True)
    (found,) = torch.autograd.grad(kernel(gate, torch.ones_like(gate)).sum(), gate)
    assert found.tolist() == [1.0, 0.0]


@both
def test_every_bf16_number_bitwise(kernel: Function, plain: Function, device: torch.device) -> None:
    gate = torch.arange(65536, dtype=torch.int32, device=device).to(torch.int16).view(torch.bfloat16)
    gate = gate[gate.isfinite()].clone().requires_grad_()
    up = torch.linspace(-3, 3, len(gate), device=device).to(torch.bfloat16).requires_grad_()
    found = outputs_and_gradients(lambda *leaves: kernel(*leaves, exact=True), [gate, up])
    library = outputs_and_gradients(plain, copies(gate, up))
    for what in found:
        assert torch.equal(found[what].nan_to_num(), library[what].nan_to_num()), what


def test_tables_are_made_once_for_each_device(device: torch.device) -> None:
    assert tables("silu", device)[0] is tables("silu", device)[0]


def test_halves_of_one_projection_are_not_copied(draw: torch.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    both_halves = normal(draw, 3, 5, 64, dtype=torch.bfloat16)

    def through(function: Function) -> Function:
        return lambda x: function(*x.chunk(2, dim=-1))

    hold(through(geglu.geglu), through(geglu.geglu_plain), [both_halves])
    with monkeypatch.context() as patch, torch.no_grad():
        patch.setattr(torch.Tensor, "contiguous", lambda *_: pytest.fail("copied"))
        through(geglu.geglu)(both_halves)


@EXAMPLES
@given(
    shape=st.lists(st.integers(1, 9), min_size=1, max_size=3),
    gaps=st.tuples(st.integers(0, 2), st.integers(0, 2)),
    transposed=st.tuples(st.booleans(), st.booleans()),
)
def test_any_shape_and_stride(
    shape: list[int], gaps: tuple[int, int], transposed: tuple[bool, bool], device: torch.device
) -> None:
    draw = torch.Generator(device).manual_seed(sum(shape))
    leaves = []
    for gap, turned in zip(gaps, transposed, strict=True):
        base = normal(draw, *(reversed(shape) if turned else shape[:-1]), *(() if turned else (shape[-1] + gap,)))
        leaves.append((base.permute(*reversed(range(len(shape)))) if turned else base[..., gap:]).detach())
    hold(geglu.geglu, geglu.geglu_plain, [leaf.requires_grad_() for leaf in leaves], factor=2.0)


@both
def test_gradients_by_differences(kernel: Function, plain: Function, draw: torch.Generator) -> None:
    leaves = tuple(normal(draw, 2, 3, dtype=torch.float64, scale=2.0) for _ in range(2))
    assert torch.autograd.gradcheck(kernel, leaves)


@both
def test_refused_inputs_take_the_plain_path(kernel: Function, plain: Function, device: torch.device) -> None:
    gate = torch.randn(3, 4, device=device)
    for other in (torch.randn(4, device=device), torch.randn(3, 4, device=device).double()):
        assert geglu.unfit(gate, other) == "gate and up differ in shape or dtype"
        assert torch.equal(kernel(gate, other), plain(gate, other))
    assert geglu.unfit(gate, gate, exact=True) == "the table is for bf16 only"
