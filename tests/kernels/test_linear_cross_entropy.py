# SPDX-License-Identifier: Apache-2.0
"""linear_cross_entropy: loss and gradients of the library's two steps, without their logits."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.kernels.closeness import DTYPES, assert_close, copies, doubles
from turbo_hydra.kernels import linear_cross_entropy as module
from turbo_hydra.kernels.linear_cross_entropy import linear_cross_entropy, linear_cross_entropy_plain, unfit


def inputs(
    draw: torch.Generator, dtype: torch.dtype, rows: int = 13, width: int = 8, vocabulary: int = 37, scale: float = 1.0
) -> tuple[list[torch.Tensor], torch.Tensor]:
    """Hidden and weight, leaves of a graph, and a target of which some are ignored."""
    leaves = [
        (torch.randn(size, width, device=draw.device, generator=draw) * scale).to(dtype).requires_grad_()
        for size in (rows, vocabulary)
    ]
    target = torch.randint(0, vocabulary, (rows,), device=draw.device, generator=draw)
    target[1::4] = -100
    return leaves, target


def results(function: Any, leaves: list[torch.Tensor], target: torch.Tensor, **options: Any) -> list[torch.Tensor]:
    """Loss and gradients of three times the loss."""
    loss = function(*leaves, target, **options)
    return [loss, *torch.autograd.grad(loss * 3, leaves)]


def hold(leaves: list[torch.Tensor], target: torch.Tensor, factor: float = 1.25, **options: Any) -> None:
    """Compare loss and gradients of kernel and plain path with float64."""
    found = results(linear_cross_entropy, leaves, target, **options)
    library = results(linear_cross_entropy_plain, copies(*leaves), target, **options)
    exact = results(linear_cross_entropy_plain, doubles(*leaves), target, **options)
    for what, *three in zip(("loss", "hidden's", "weight's"), found, library, exact, strict=True):
        assert_close(*three, what=what, factor=factor)


@pytest.mark.parametrize("options", [{}, {"reduction": "sum", "ignore_index": 3, "label_smoothing": 0.1}], ids=str)
@pytest.mark.parametrize("dtype", [*DTYPES, torch.float64], ids=str)
def test_no_further_from_the_exact_result_than_the_library(
    dtype: torch.dtype, options: dict[str, Any], draw: torch.Generator
) -> None:
    if dtype == torch.float64 and draw.device.type == "cuda":
        dtype = torch.float32
    leaves, target = inputs(draw, dtype)
    if "ignore_index" in options:
        target[target < 0] = options["ignore_index"]
    hold(leaves, target, factor=1.5, **options)


def test_vocabularies_longer_than_a_block(draw: torch.Generator) -> None:
    hold(*inputs(draw, torch.float32, rows=5, vocabulary=9001), label_smoothing=0.2)


def test_parts_are_summed_precisely(draw: torch.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    leaves, target = inputs(draw, torch.bfloat16, rows=140)
    monkeypatch.setattr(module, "PART", 128 * 37 * 2)
    hold(leaves, target, factor=1.5)


@pytest.mark.parametrize("scale", [1e-6, 10.0, 1e3], ids=str)
def test_tiny_and_large_inputs(scale: float, draw: torch.Generator) -> None:
    hold(*inputs(draw, torch.float32, scale=scale), factor=2.0)


def test_strides_and_leading_dimensions(draw: torch.Generator) -> None:
    hidden = torch.randn(3, 8, 4, device=draw.device, generator=draw).transpose(1, 2).requires_grad_()
    weight = torch.randn(8, 21, device=draw.device, generator=draw).T.requires_grad_()
    hold([hidden, weight], torch.randint(0, 21, (4, 3), device=draw.device, generator=draw).T)


def test_only_the_gradients_that_are_asked_for(draw: torch.Generator) -> None:
    (hidden, weight), target = inputs(draw, torch.float32)
    for one, other in ((hidden, weight.detach()), (hidden.detach(), weight)):
        for function in (linear_cross_entropy, linear_cross_entropy_plain):
            function(one, other, target).backward()
        leaf = one if one.requires_grad else other
        (once,) = torch.autograd.grad(linear_cross_entropy_plain(one, other, target), leaf)
        torch.testing.assert_close(leaf.grad, 2 * once, rtol=1e-5, atol=1e-7)
    with torch.no_grad():
        quiet = linear_cross_entropy(hidden, weight, target)
    torch.testing.assert_close(quiet, linear_cross_entropy_plain(hidden, weight, target).detach())


def test_nothing_but_ignored_targets(draw: torch.Generator) -> None:
    leaves, target = inputs(draw, torch.float32)
    loss, for_hidden, for_weight = results(linear_cross_entropy, leaves, torch.full_like(target, -100))
    assert loss.isnan()
    assert for_hidden.eq(0).all()
    assert for_weight.eq(0).all()


def test_targets_outside_the_vocabulary_are_seen(draw: torch.Generator) -> None:
    leaves, target = inputs(draw, torch.float32)
    target[0] = 37
    loss, for_hidden, _ = results(linear_cross_entropy, leaves, target)
    assert loss.isnan()
    assert for_hidden[0].isnan().all()
    assert for_hidden[2:].isfinite().all()


@pytest.mark.parametrize("number", [float("nan"), float("inf")], ids=str)
def test_numbers_that_are_not_finite_spoil_their_row(number: float, draw: torch.Generator) -> None:
    leaves, target = inputs(draw, torch.float32)
    with torch.no_grad():
        leaves[0][2, 3] = number
    found, plain = (results(f, leaves, target) for f in (linear_cross_entropy, linear_cross_entropy_plain))
    assert found[0].isnan()
    assert torch.equal(found[1].isfinite(), plain[1].isfinite())


def test_gradients_in_double_precision(draw: torch.Generator) -> None:
    if draw.device.type == "cuda":
        pytest.skip("float64 is for the interpreter only")
    leaves, target = inputs(draw, torch.float64, rows=4, width=3, vocabulary=5)
    assert torch.autograd.gradcheck(
        lambda h, w: linear_cross_entropy(h, w, target, label_smoothing=0.1), leaves, fast_mode=True
    )


def test_one_graph_under_torch_compile(draw: torch.Generator) -> None:
    leaves, target = inputs(draw, torch.float32)
    compiled = torch.compile(linear_cross_entropy, backend="aot_eager", fullgraph=True)
    for one, two in zip(results(compiled, leaves, target), results(linear_cross_entropy, leaves, target), strict=True):
        torch.testing.assert_close(one, two)


def test_the_operator_is_declared_as_it_behaves(draw: torch.Generator) -> None:
    (hidden, weight), target = inputs(draw, torch.float32)
    for wanted in ((True, True), (False, False)):
        arguments = (hidden.detach(), weight.detach(), target, -100, 0.0, True, *wanted)
        torch.library.opcheck(module.classify, arguments, test_utils=("test_schema", "test_faketensor"))


def test_what_the_kernel_does_not_take_goes_the_plain_path(draw: torch.Generator) -> None:
    (hidden, weight), target = inputs(draw, torch.float32)
    assert unfit(hidden, weight, target, 0.0, "none") == "losses are not reduced"
    assert linear_cross_entropy(hidden, weight, target, reduction="none").shape == target.shape
    assert unfit(hidden, weight.half(), target) == "hidden and weight differ in dtype or are float64"
    assert unfit(hidden, weight, target.int()) == "the target is not int64 on the same device"
    assert unfit(hidden[:0], weight, target[:0]) == "nothing to classify"
    assert linear_cross_entropy(hidden[:0], weight, target[:0], reduction="sum") == 0


@settings(max_examples=5, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.integers(1, 9), width=st.integers(1, 9), vocabulary=st.integers(2, 70),
    smoothing=st.sampled_from((0.0, 0.3)), seed=st.integers(0, 9),
)  # fmt: skip
def test_shapes_at_random(
    rows: int, width: int, vocabulary: int, smoothing: float, seed: int, device: torch.device
) -> None:
    draw = torch.Generator(device).manual_seed(seed)
    hold(*inputs(draw, torch.float32, rows, width, vocabulary), factor=2.0, label_smoothing=smoothing)
