# SPDX-License-Identifier: Apache-2.0
"""ada_rms_norm: residual, gate, norm, scale and shift, result and gradients, against the library's path and float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.kernels.closeness import DTYPES, EXAMPLES, FACTOR, Function, assert_close, copies, doubles
from turbo_hydra.kernels import ada_rms_norm as module
from turbo_hydra.kernels.ada_rms_norm import unfit

Inputs = dict[str, Any]
EPS = 1e-6
# Called with their inputs unpacked.
ada_rms_norm: Function = module.ada_rms_norm
ada_rms_norm_plain: Function = module.ada_rms_norm_plain


def inputs(
    shape: tuple[int, ...], dtype: torch.dtype, parts: str, draw: torch.Generator, modulation: torch.dtype | None = None
) -> Inputs:
    """Leaves of a graph: x and what `parts` names of residual, gate, shift; modulations for each batch entry."""

    def leaf(*size: int, of: torch.dtype) -> torch.Tensor:
        return torch.randn(size, device=draw.device, generator=draw).to(of).requires_grad_()

    of = modulation or dtype
    found = {"x": leaf(*shape, of=dtype), "scale": leaf(shape[0], shape[-1], of=of)}
    if "residual" in parts:
        found["residual"] = leaf(*shape, of=dtype)
    if "gate" in parts:
        found["gate"] = leaf(shape[0], shape[-1], of=of)
    if "shift" in parts:
        found["shift"] = leaf(shape[0], shape[-1], of=of)
    return found


def results(function: Function, given_: Inputs, offset: float = 1.0) -> list[torch.Tensor]:
    """y, h and the gradients of all inputs, of a weighted sum of y and h."""
    y, h = function(**{"shift": None, **given_}, eps=EPS, offset=offset)
    ramp = torch.linspace(-1, 1, y.numel(), device=y.device, dtype=torch.float64).view(y.shape)
    outputs = (y, h) if "residual" in given_ else (y,)
    weights = [(ramp.flip(0) if out is h else ramp).to(out.dtype) for out in outputs]
    return [y, h, *torch.autograd.grad(outputs, list(given_.values()), weights)]


def hold(given_: Inputs, offset: float = 1.0, factor: float = FACTOR) -> None:
    """Compare kernel and library with float64."""
    assert unfit(**given_) is None
    names, leaves = list(given_), list(given_.values())
    found = results(ada_rms_norm, given_, offset)
    library = results(ada_rms_norm_plain, dict(zip(names, copies(*leaves), strict=True)), offset)
    exact = results(ada_rms_norm_plain, dict(zip(names, doubles(*leaves), strict=True)), offset)
    for what, *three in zip(["y", "h", *(f"grad of {name}" for name in names)], found, library, exact, strict=True):
        assert_close(*three, what=what, factor=factor)


@pytest.mark.parametrize("dtype", [*DTYPES, torch.float64], ids=str)
@pytest.mark.parametrize("parts", ["", "shift", "residual", "residual shift", "residual gate shift"])
def test_each_combination_of_parts(dtype: torch.dtype, parts: str, draw: torch.Generator) -> None:
    hold(inputs((2, 3, 40), dtype, parts, draw))


@pytest.mark.parametrize("shape", [(2, 3, 1024), (1, 1, 1), (1, 1, 2049), (4, 33), (2, 3, 2, 17)], ids=str)
def test_shapes(shape: tuple[int, ...], draw: torch.Generator) -> None:
    hold(inputs(shape, torch.bfloat16, "residual gate shift", draw))


def test_modulations_of_float32_and_as_parts_of_one_tensor(draw: torch.Generator) -> None:
    given_ = inputs((3, 4, 32), torch.bfloat16, "residual", draw)
    all_three = torch.randn(3, 1, 96, device=draw.device, generator=draw).requires_grad_()
    scale, shift, gate = all_three.chunk(3, dim=-1)
    y, h = ada_rms_norm(given_["x"], scale, shift, EPS, given_["residual"], gate)
    plain = ada_rms_norm_plain(given_["x"], scale, shift, EPS, given_["residual"], gate)
    (found,) = torch.autograd.grad((y.float() ** 2).sum() + h.float().sum(), all_three, retain_graph=True)
    (expected,) = torch.autograd.grad((plain[0].float() ** 2).sum() + plain[1].float().sum(), all_three)
    torch.testing.assert_close(y, plain[0], rtol=1.6e-2, atol=1e-2)
    torch.testing.assert_close(found, expected, rtol=1.6e-2, atol=5e-2)


def test_one_scale_for_all_beside_a_shift_for_each(draw: torch.Generator) -> None:
    given_ = inputs((3, 4, 32), torch.float32, "shift", draw)
    given_["scale"] = given_["scale"].detach()[0].clone().requires_grad_()
    hold(given_)


def test_a_result_that_nothing_is_done_with_has_no_gradient_to_pass(draw: torch.Generator) -> None:
    given_ = inputs((2, 3, 16), torch.float32, "residual", draw)
    for index in range(2):
        found = torch.autograd.grad(
            ada_rms_norm(**given_, shift=None, eps=EPS)[index].sum(), list(given_.values()), allow_unused=True
        )
        exact = torch.autograd.grad(
            ada_rms_norm_plain(**given_, shift=None, eps=EPS)[index].sum(), list(given_.values()), allow_unused=True
        )
        for one, other in zip(found, exact, strict=True):
            torch.testing.assert_close(
                torch.zeros(1) if one is None else one, torch.zeros_like(one) if other is None else other
            )


@pytest.mark.parametrize("scale", [1e-25, 1e-4, 1e4, 1e25], ids=str)
def test_tiny_and_large_inputs(scale: float, draw: torch.Generator) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        given_ = inputs((2, 3, 40), dtype, "shift", draw)
        given_["x"] = (given_["x"].detach() * scale).requires_grad_()
        y, _ = ada_rms_norm(**given_, eps=EPS)
        library, _ = ada_rms_norm_plain(**given_, eps=EPS)
        torch.testing.assert_close(y, library, equal_nan=True)


@pytest.mark.parametrize("value", [float("nan"), float("inf")], ids=str)
def test_what_is_not_finite_stays_in_its_row(value: float, draw: torch.Generator) -> None:
    given_ = inputs((2, 3, 40), torch.float32, "shift", draw)
    x = given_["x"].detach().clone()
    x[1, 2, 3] = value
    y, _ = ada_rms_norm(x, given_["scale"], given_["shift"], EPS)
    library, _ = ada_rms_norm_plain(x, given_["scale"], given_["shift"], EPS)
    torch.testing.assert_close(y, library, equal_nan=True)
    assert y[0].isfinite().all()


@pytest.mark.parametrize("shape", [(0, 4, 8), (2, 0, 8)], ids=str)
def test_empty(shape: tuple[int, ...], draw: torch.Generator) -> None:
    given_ = inputs(shape, torch.float32, "residual gate shift", draw)
    for out, item in zip(results(ada_rms_norm, given_)[2:], given_.values(), strict=True):
        assert out.shape == item.shape
        assert not out.any()


@EXAMPLES
@given(
    batch=st.integers(1, 2),
    rows=st.integers(1, 3),
    width=st.integers(3, 70),
    parts=st.sampled_from(["", "shift", "residual gate shift"]),
    transposed=st.booleans(),
    gap=st.integers(0, 2),
)
def test_any_shape_and_stride(
    batch: int, rows: int, width: int, parts: str, transposed: bool, gap: int, device: torch.device
) -> None:
    draw = torch.Generator(device).manual_seed(batch * rows * width)
    given_ = inputs((batch, rows, width), torch.float32, parts, draw)
    for name in ("x", "residual"):
        if name in given_:
            base = torch.randn(rows, batch, width + gap, device=device, generator=draw)
            item = base[..., gap:].transpose(0, 1) if transposed else base.view(batch, rows, -1)[..., gap:]
            given_[name] = item.detach().requires_grad_()
    # Short rows' gradients are small differences of large numbers, for the library as for the kernel.
    hold(given_, factor=4.0)


def test_gradients_by_differences(draw: torch.Generator) -> None:
    given_ = inputs((2, 2, 5), torch.float64, "residual gate shift", draw)

    def call(*leaves: torch.Tensor) -> Any:
        return ada_rms_norm(**dict(zip(given_, leaves, strict=True)), eps=1e-2)

    assert torch.autograd.gradcheck(call, tuple(given_.values()), fast_mode=True)


def test_refused_inputs_take_the_plain_path(draw: torch.Generator) -> None:
    given_ = inputs((2, 3, 8), torch.float32, "", draw)
    wide = torch.randn(1, 16385, device=draw.device)
    refused = {
        "does not fit into one program": (wide, wide[0]),
        "neither [width] nor": (given_["x"], torch.randn(2, 3, 8, device=draw.device)),
        "this dtype": (given_["x"], torch.ones(8, dtype=torch.int64, device=draw.device)),
    }
    for words, (x, scale) in refused.items():
        assert words in str(unfit(x, scale))
        y, h = ada_rms_norm(x, scale, None, EPS)
        torch.testing.assert_close(y, ada_rms_norm_plain(x, scale, None, EPS)[0])
        assert h is x
