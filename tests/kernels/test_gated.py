# SPDX-License-Identifier: Apache-2.0
"""geglu and swiglu: the library's result within its own error, bitwise where that is asked for."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tests.kernels.closeness import DTYPES, assert_close, copies, doubles
from turbo_hydra.kernels import geglu, swiglu

Function = Callable[..., torch.Tensor]
both = pytest.mark.parametrize(
    ("kernel", "plain"),
    [(geglu.geglu, geglu.geglu_plain), (swiglu.swiglu, swiglu.swiglu_plain)],
    ids=["geglu", "swiglu"],
)


def results(function: Function, inputs: list[torch.Tensor], grad: torch.Tensor) -> list[torch.Tensor]:
    """Output and gradients."""
    out = function(*inputs)
    return [out, *torch.autograd.grad(out, inputs, grad.to(out.dtype))]


def hold(kernel: Function, plain: Function, gate: torch.Tensor, up: torch.Tensor) -> None:
    """Compare result and gradients of kernel and plain path with float64."""
    grad = torch.linspace(-1, 1, gate.numel(), device=gate.device).view(gate.shape).to(gate.dtype)
    found = results(kernel, [gate, up], grad)
    library = results(plain, copies(gate, up), grad)
    exact = results(plain, doubles(gate, up), grad)
    for what, *three in zip(("out", "grad of gate", "grad of up"), found, library, exact, strict=True):
        assert_close(*three, what=what)


def pair(shape: tuple[int, ...], dtype: torch.dtype, draw: torch.Generator, scale: float = 1.0) -> list[torch.Tensor]:
    """Gate and up, leaves of a graph."""
    return [
        (torch.randn(shape, device=draw.device, generator=draw) * scale).to(dtype).requires_grad_() for _ in range(2)
    ]


@both
@pytest.mark.parametrize("dtype", [*DTYPES, torch.float64], ids=str)
@pytest.mark.parametrize("shape", [(5, 7, 33), (1, 1), (3, 4096), (4099,), (0, 8), (2, 0)], ids=str)
def test_no_further_from_the_exact_result_than_the_library(
    kernel: Function, plain: Function, dtype: torch.dtype, shape: tuple[int, ...], draw: torch.Generator
) -> None:
    hold(kernel, plain, *pair(shape, dtype, draw))


@both
@pytest.mark.parametrize("scale", [1e-30, 1e-3, 30.0, 1e4, 1e18], ids=str)
def test_tiny_and_large_inputs(kernel: Function, plain: Function, scale: float, draw: torch.Generator) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        hold(kernel, plain, *pair((3, 65), dtype, draw, scale))
