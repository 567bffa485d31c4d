# SPDX-License-Identifier: Apache-2.0
"""msda: what grid_sample reads between the cells of each map, within its own error."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.kernels.closeness import DTYPES, assert_close, copies, doubles
from turbo_hydra.kernels import msda as module
from turbo_hydra.kernels.msda import msda, msda_plain, unfit

MAPS = ((5, 7), (2, 3))


def maps(shapes: tuple[tuple[int, int], ...], device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Shapes and starts of maps that lie one after the other."""
    sizes = torch.tensor(shapes, device=device)
    cells = sizes.prod(1)
    return sizes, cells.cumsum(0) - cells


def inputs(
    draw: torch.Generator, dtype: torch.dtype, *, batch: int = 2, queries: int = 5, heads: int = 3, width: int = 5,
    points: int = 2, shapes: tuple[tuple[int, int], ...] = MAPS, scale: float = 1.0,
) -> list[torch.Tensor]:  # fmt: skip
    """Value, locations (some beyond the edges) and weights, leaves of a graph."""
    cells = sum(height * across for height, across in shapes)
    uniform: Any = {"device": draw.device, "generator": draw}
    value = torch.randn(batch, cells, heads, width, **uniform) * scale
    locations = torch.rand(batch, queries, heads, len(shapes), points, 2, **uniform) * 1.6 - 0.3
    weights = torch.rand(batch, queries, heads, len(shapes), points, **uniform)
    return [tensor.to(dtype).requires_grad_() for tensor in (value, locations, weights)]


def results(function: Any, tensors: list[torch.Tensor], shapes: tuple[tuple[int, int], ...] = MAPS, **rest: Any) -> Any:
    """Output and gradients."""
    value, locations, weights = tensors
    out = function(value, *maps(shapes, value.device), locations, weights, **rest)
    grad = torch.linspace(-1, 1, out.numel(), device=out.device).view(out.shape).to(out.dtype)
    return [out, *torch.autograd.grad(out, tensors, grad)]


def hold(
    tensors: list[torch.Tensor], shapes: tuple[tuple[int, int], ...] = MAPS, deterministic: bool = False,
    factor: float = 1.25, in_cells: bool = False,
) -> None:  # fmt: skip
    """Compare result and gradients of kernel and plain path with float64."""
    value, locations, weights = tensors
    assert unfit(value, *maps(shapes, value.device), locations, weights) is None
    found = results(msda, tensors, shapes, deterministic=deterministic, in_cells=in_cells)
    library = results(msda_plain, copies(*tensors), shapes, in_cells=in_cells)
    exact = results(msda_plain, doubles(*tensors), shapes, in_cells=in_cells)
    for what, *three in zip(("out", "value's", "locations'", "weights'"), found, library, exact, strict=True):
        assert_close(*three, what=what, factor=factor)


@pytest.mark.parametrize("deterministic", [False, True], ids=["in any order", "in integers"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_no_further_from_the_exact_result_than_the_library(
    dtype: torch.dtype, deterministic: bool, draw: torch.Generator
) -> None:
    hold(inputs(draw, dtype, queries=5), deterministic=deterministic)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_locations_in_cells_of_wide_heads(dtype: torch.dtype, draw: torch.Generator) -> None:
    value, locations, weights = inputs(draw, dtype, queries=3, heads=1, width=300)
    with torch.no_grad():
        locations.mul_(8).sub_(1)  # beyond the edges of both maps
    hold([value, locations, weights], in_cells=True)


def test_in_cells_a_whole_number_is_a_cell_and_its_slopes_are_those_to_the_right_and_below(
    device: torch.device,
) -> None:
    value = torch.tensor([1.0, 2.0, 4.0, 8.0, 16.0, 32.0], device=device).view(1, 6, 1, 1)
    places = torch.tensor([[[1.0, 0.0], [2.0, 1.0], [-1.0, 0.0]]], device=device).view(1, 3, 1, 1, 1, 2)
    places.requires_grad_()
    weights = torch.ones(1, 3, 1, 1, 1, device=device)
    found = msda(value, *maps(((2, 3),), device), places, weights, in_cells=True)
    assert found.flatten().tolist() == [2.0, 32.0, 0.0]
    (slopes,) = torch.autograd.grad(found.sum(), places)
    assert slopes.view(3, 2).tolist() == [[2.0, 14.0], [-32.0, -32.0], [1.0, 0.0]]


def test_by_hand(device: torch.device) -> None:
    # One map of 2 x 2; its middle is the mean, the centre of a cell the cell, a corner a quarter of the cell at it.
    value = torch.tensor([1.0, 2.0, 3.0, 4.0], device=device).view(1, 4, 1, 1)
    points = [[0.5, 0.5], [0.25, 0.25], [0.75, 0.25], [0.0, 0.0], [1.0, 1.0], [0.5, 0.25], [-0.25, 0.5], [2.0, 0.5]]
    locations = torch.tensor(points, device=device).view(1, 8, 1, 1, 1, 2)
    out = msda(value, *maps(((2, 2),), device), locations, torch.ones(1, 8, 1, 1, 1, device=device))
    assert out.flatten().tolist() == [2.5, 1.0, 2.0, 0.25, 1.0, 1.5, 0.0, 0.0]


def test_locations_and_weights_more_precise_than_the_maps(draw: torch.Generator) -> None:
    value, locations, weights = inputs(draw, torch.float32)
    hold([value.detach().bfloat16().requires_grad_(), locations, weights])


@pytest.mark.parametrize("scale", [1e-20, 1e15], ids=str)
def test_tiny_and_large_maps(scale: float, draw: torch.Generator) -> None:
    for deterministic in (False, True):
        hold(inputs(draw, torch.float32, batch=1, scale=scale), deterministic=deterministic)


def test_strides_cost_nothing_but_a_copy(draw: torch.Generator) -> None:
    value, locations, weights = inputs(draw, torch.float32, heads=2)
    packed = torch.randn(value.shape[1], 2, 3, 2, value.shape[3], device=draw.device, generator=draw)
    slices = packed[:, :, 1].transpose(0, 1).detach().requires_grad_()
    turned = packed[:, :, 0].transpose(0, 1).transpose(2, 3).contiguous().transpose(2, 3).detach().requires_grad_()
    for strided in (slices, turned):
        assert not strided.is_contiguous()
        hold(
            [strided, locations.detach().flip(1).requires_grad_(), weights.detach().expand_as(weights).requires_grad_()]
        )


def test_elements_far_from_the_first(draw: torch.Generator) -> None:
    value, locations, weights = inputs(draw, torch.bfloat16)
    far = torch.empty(2**31 + value.numel(), dtype=torch.bfloat16, device=draw.device)
    view = far.as_strided(value.shape, (2**31, *value.stride()[1:]))
    view.copy_(value.detach())
    hold([view.requires_grad_(), locations, weights])


def test_the_same_in_each_run(draw: torch.Generator) -> None:
    tensors = inputs(draw, torch.float32, queries=12)
    first = results(msda, tensors, MAPS, deterministic=True)
    # As many terms a cell as there are queries, in another order of programs.
    order = torch.randperm(12, generator=torch.Generator().manual_seed(2)).to(draw.device)
    value, locations, weights = tensors
    out = msda(value, *maps(MAPS, value.device), locations.detach()[:, order], weights.detach()[:, order], True)
    grad = torch.linspace(-1, 1, out.numel(), device=out.device).view(out.shape)[:, order]
    assert torch.equal(torch.autograd.grad(out, value, grad)[0], first[1])


def test_torch_says_whether_runs_must_be_the_same(draw: torch.Generator) -> None:
    tensors = inputs(draw, torch.float32, queries=3)
    torch.use_deterministic_algorithms(True)
    try:
        found = results(msda, tensors)
    finally:
        torch.use_deterministic_algorithms(False)
    assert all(map(torch.equal, found, results(msda, tensors, MAPS, deterministic=True)))


@pytest.mark.parametrize("number", [float("nan"), float("inf")], ids=str)
def test_numbers_that_are_not_finite_spoil_what_they_reach(number: float, draw: torch.Generator) -> None:
    value, locations, weights = inputs(draw, torch.float32)
    clean = results(msda, [value, locations, weights])
    with torch.no_grad():
        weights[0, 2, 1, 0, 0] = number
        locations[1, 4, 2, 1, 1, 0] = number
    out, for_value, for_locations, for_weights = results(msda, [value, locations, weights])
    spoilt = torch.zeros_like(out, dtype=torch.bool)
    spoilt[0, 2, 5:10] = True
    spoilt[1, 4, 10:15] = True
    assert torch.equal(out[~spoilt], clean[0][~spoilt])
    assert for_value[:, :, 0].isfinite().all()
    assert for_locations[:, :, 0].isfinite().all()
    assert for_weights[:, :, 0].isfinite().all()
    # A sum in integers has no place for them: it says so everywhere.
    with torch.no_grad():
        locations[1, 4, 2, 1, 1, 0] = 0.5
    assert results(msda, [value, locations, weights], MAPS, deterministic=True)[1].isnan().all()


def test_shapes_that_do_not_fit_the_maps_read_nothing_else(draw: torch.Generator) -> None:
    value, locations, weights = inputs(draw, torch.float32, shapes=((4, 4),))
    sizes, starts = maps(((4, 4),), draw.device)
    beyond = msda(value[:, :8], sizes, starts, locations, weights)
    padded = torch.cat((value[:, :8], torch.zeros_like(value[:, 8:])), 1)
    torch.testing.assert_close(beyond, msda(padded, sizes, starts, locations, weights))
    assert msda(value, sizes, starts + 100, locations, weights).eq(0).all()
    assert msda(value, sizes, starts - 100, locations, weights).eq(0).all()


def test_gradients_in_double_precision(draw: torch.Generator) -> None:
    if draw.device.type == "cuda":
        pytest.skip("float64 is for the interpreter only")
    shapes = ((3, 4), (2, 2))
    tensors = inputs(draw, torch.float64, queries=2, heads=2, width=2, shapes=shapes)
    assert torch.autograd.gradcheck(
        lambda value, *rest: msda(value, *maps(shapes, value.device), *rest), tensors, fast_mode=True
    )


def test_one_graph_under_torch_compile(draw: torch.Generator) -> None:
    value, locations, weights = inputs(draw, torch.float32)
    places = maps(MAPS, draw.device)
    compiled = torch.compile(msda, backend="aot_eager", fullgraph=True)
    found = torch.autograd.grad(compiled(value, *places, locations, weights, True).sum(), [value, locations, weights])
    expected = torch.autograd.grad(msda(value, *places, locations, weights, True).sum(), [value, locations, weights])
    for one, two in zip(found, expected, strict=True):
        torch.testing.assert_close(one, two)


def test_operators_are_declared_as_they_behave(draw: torch.Generator) -> None:
    value, locations, weights = (tensor.detach() for tensor in inputs(draw, torch.float32, queries=2))
    arguments = (value, *maps(MAPS, draw.device), locations, weights, True, False)
    torch.library.opcheck(module.sample, arguments, test_utils=("test_schema", "test_faketensor"))
    grad = torch.ones(2, 2, 15, device=draw.device)
    torch.library.opcheck(module.sample_backward, (grad, *arguments), test_utils=("test_schema", "test_faketensor"))


def test_what_the_kernels_do_not_take_goes_the_plain_path(draw: torch.Generator) -> None:
    value, locations, weights = inputs(draw, torch.float32)
    sizes, starts = maps(MAPS, draw.device)
    assert unfit(value, sizes, starts, locations, weights[..., :1]) is not None
    assert unfit(value, sizes[:1], starts, locations, weights) == "shapes and starts are not [L, 2] and [L]"
    nothing = locations[:, :0], weights[:, :0]
    assert unfit(value, sizes, starts, *nothing) == "nothing to read, or heads larger than 512"
    assert msda(value, sizes, starts, *nothing).shape == (2, 0, 15)


@settings(max_examples=3, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    batch=st.integers(1, 2), queries=st.integers(1, 12), heads=st.integers(1, 3), width=st.integers(1, 40),
    points=st.integers(1, 3), shapes=st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5)), min_size=1, max_size=2),
    seed=st.integers(0, 9),
)  # fmt: skip
def test_shapes_at_random(
    batch: int, queries: int, heads: int, width: int, points: int, shapes: list[tuple[int, int]], seed: int,
    device: torch.device,
) -> None:  # fmt: skip
    draw = torch.Generator(device).manual_seed(seed)
    chosen = tuple(shapes)
    tensors = inputs(
        draw, torch.float32, batch=batch, queries=queries, heads=heads, width=width, points=points, shapes=chosen
    )
    hold(tensors, chosen)
