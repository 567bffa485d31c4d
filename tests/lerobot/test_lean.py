# SPDX-License-Identifier: Apache-2.0
"""Norm and gate as one node each: the values and gradients of the formulas written out, and what is kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from turbo_hydra.catalogs.shared.lean import LeanGeglu, LeanNorm

TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2e-2}
SHAPES = {"one row": (1, 1, 3), "odd": (2, 5, 7), "a layer": (4, 33, 64)}


def formula(x: Tensor, scale: Tensor, shift: Tensor | None, eps: float) -> Tensor:
    wide = x.double()
    y = wide / (wide.square().mean(-1, keepdim=True) + eps).sqrt() * scale.double()
    return y if shift is None else y + shift.double()


def gradients(function: Callable[..., Tensor], *inputs: Tensor | None) -> list[Tensor]:
    """The result, and the gradients of a weighted sum of it."""
    leaves = [item.detach().requires_grad_() for item in inputs if item is not None]
    rest = iter(leaves)
    result = function(*(None if item is None else next(rest) for item in inputs))
    weights = torch.linspace(-1, 1, result.numel(), dtype=torch.float64).view(result.shape)
    return [result.detach(), *torch.autograd.grad((result.double() * weights).sum(), leaves)]


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("modulated", [False, True])
def test_the_norm_is_the_formula_forward_and_backward(
    dtype: torch.dtype, shape: tuple[int, ...], modulated: bool
) -> None:
    torch.manual_seed(0)
    x = (3 * torch.randn(shape)).to(dtype)
    each = (shape[0], 1, shape[-1]) if modulated else shape[-1:]
    scale, shift = 1 + torch.randn(each), torch.randn(each) if modulated else None
    lean = gradients(lambda *given: LeanNorm.apply(*given, 1e-6), x, scale, shift)  # type: ignore[no-untyped-call]
    doubles = [None if item is None else item.double() for item in (x, scale, shift)]
    exact = gradients(lambda x, scale, shift: formula(x, scale, shift, 1e-6), *doubles)
    assert lean[0].dtype == lean[1].dtype == dtype
    assert lean[2].dtype == torch.float32
    for found, expected in zip(lean, exact, strict=True):
        size = expected.abs().max().item() or 1.0
        assert (found.double() - expected).abs().max().item() <= TOLERANCE[dtype] * size


@pytest.mark.parametrize("modulated", [False, True])
def test_the_norms_gradient_is_that_of_finite_differences(modulated: bool) -> None:
    torch.manual_seed(0)
    each = (2, 1, 4) if modulated else (4,)
    inputs = [torch.randn(2, 3, 4), torch.randn(each), torch.randn(each) if modulated else None]
    doubles = [None if item is None else item.double().requires_grad_() for item in inputs]
    assert torch.autograd.gradcheck(lambda *given: LeanNorm.apply(*given, 1e-3), doubles)  # type: ignore[no-untyped-call, arg-type]


def test_only_what_needs_a_gradient_gets_one() -> None:
    x = torch.randn(2, 3, 4)
    scale = torch.randn(4, requires_grad=True)
    result: Tensor = LeanNorm.apply(x, scale, None, 1e-6)  # type: ignore[no-untyped-call]
    result.sum().backward()
    assert x.grad is None
    assert scale.grad is not None


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_the_gate_is_the_librarys_bit_by_bit(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    gate, up = (2 * torch.randn(3, 17, 33)).to(dtype), torch.randn(3, 17, 33).to(dtype)
    lean = gradients(lambda *given: LeanGeglu.apply(*given), gate, up)  # type: ignore[no-untyped-call]
    plain = gradients(lambda g, u: functional.gelu(g, approximate="tanh") * u, gate, up)
    for found, expected in zip(lean, plain, strict=True):
        assert found.dtype == dtype
        assert torch.equal(found, expected)


def kept(function: Callable[[], Any]) -> int:
    """How many numbers autograd keeps of a computation, in tensors of more than one row."""
    sizes: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        if tensor.dim() > 2 and tensor.shape[1] > 1 and tensor.shape[-1] > 1:
            sizes[tensor.data_ptr()] = tensor.numel()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        function()
    return sum(sizes.values())


def test_less_is_kept_than_by_the_formulas() -> None:
    x = torch.randn(2, 8, 16, requires_grad=True)
    up = torch.randn(2, 8, 16, requires_grad=True)
    scale = torch.randn(16, requires_grad=True)
    assert kept(lambda: LeanNorm.apply(x, scale, None, 1e-6)) == x.numel()  # type: ignore[no-untyped-call]
    assert kept(lambda: LeanGeglu.apply(x, up)) == 2 * x.numel()  # type: ignore[no-untyped-call]
    assert kept(lambda: functional.gelu(x, approximate="tanh") * up) == 3 * x.numel()
