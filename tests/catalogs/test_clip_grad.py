# SPDX-License-Identifier: Apache-2.0
"""Clipping gives torch's norms and torch's gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from tests.catalogs.conftest import Reasons
from tests.catalogs.patching import applied

ID = "torch.clip_grad"
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-6, torch.float16: 2e-3, torch.bfloat16: 2e-2}


def parameters(shapes: list[tuple[int, ...]], dtypes: list[torch.dtype], scale: float = 1.0) -> list[nn.Parameter]:
    torch.manual_seed(4)
    made = [nn.Parameter(torch.zeros(shape, dtype=dtype)) for shape, dtype in zip(shapes, dtypes, strict=True)]
    for item in made:
        item.grad = (torch.randn(item.shape) * scale).to(item.dtype)
    return made


def clip(items: Any, *args: Any, **kwargs: Any) -> Tensor:
    # By attribute, as scripts call it: the halves are looked up when it runs.
    return nn.utils.clip_grad_norm_(items, *args, **kwargs)


@given(
    shapes=st.lists(st.sampled_from([(), (1,), (7,), (3, 5), (2, 1, 4)]), min_size=1, max_size=6),
    dtype=st.sampled_from(list(TOLERANCE)),
    mixed=st.booleans(),
    norm=st.sampled_from([1, 2, 2.0, 3.5, float("inf")]),
    limit=st.sampled_from([0.0, 1e-3, 0.5, 1e6]),
    foreach=st.sampled_from([None, True, False]),
)
@settings(max_examples=60, deadline=None)
def test_norm_and_gradients_are_torchs(
    shapes: list[tuple[int, ...]], dtype: torch.dtype, mixed: bool, norm: float, limit: float, foreach: bool | None
) -> None:
    dtypes = [torch.float32 if mixed and index % 2 else dtype for index in range(len(shapes))]
    plain, ours = parameters(shapes, dtypes), parameters(shapes, dtypes)
    expected = clip(plain, limit, norm, foreach=foreach)
    with applied(ID):
        found = clip(ours, limit, norm, foreach=foreach)
    assert (found.dtype, found.shape, found.requires_grad) == (expected.dtype, expected.shape, False)
    tolerance = TOLERANCE[dtype]
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)
    for mine, reference in zip(ours, plain, strict=True):
        assert mine.grad is not None
        torch.testing.assert_close(mine.grad, reference.grad, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
def test_float32_below_and_above_the_limit_is_torchs_bit_by_bit(scale: float) -> None:
    shapes, dtypes = [(5, 3), (11,)], [torch.float32] * 2
    plain, ours = parameters(shapes, dtypes, scale), parameters(shapes, dtypes, scale)
    expected = clip(plain, 1.0)
    with applied(ID):
        found = clip(ours, 1.0)
    assert torch.equal(found, expected)
    assert all(torch.equal(mine.grad, reference.grad) for mine, reference in zip(ours, plain, strict=True))  # type: ignore[arg-type]


def test_gradients_below_the_limit_are_not_written_to() -> None:
    ours = parameters([(5,)], [torch.float32])
    assert ours[0].grad is not None
    version = ours[0].grad._version
    with applied(ID):
        clip(ours, 1e6)
        assert ours[0].grad._version == version
    with applied(ID, skip_unclipped=False):
        clip(ours, 1e6)
    assert ours[0].grad._version == version + 1


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_not_finite_spreads_as_in_torch(value: float) -> None:
    results = []
    for ids in ((), (ID,)):
        items = parameters([(3,), (2,)], [torch.float32] * 2)
        assert items[0].grad is not None
        items[0].grad[1] = value
        with applied(*ids):
            norm = clip(items, 1.0)
            with pytest.raises(RuntimeError, match="non-finite"):
                clip(items, 1.0, error_if_nonfinite=True)
        results.append([norm, *(item.grad for item in items)])
    torch.testing.assert_close(results[1], results[0], equal_nan=True, rtol=0, atol=0)


class OwnTensor(Tensor):
    """A tensor of another kind."""


def own_kind() -> list[Any]:
    item = nn.Parameter(torch.zeros(3))
    item.grad = torch.ones(3).as_subclass(OwnTensor)
    return [item]


def complex_kind() -> list[Any]:
    item = nn.Parameter(torch.zeros(3, dtype=torch.complex64))
    item.grad = torch.ones(3, dtype=torch.complex64)
    return [item]


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: [nn.Parameter(torch.zeros(2))], "no gradients"),
        (own_kind, "not plain"),
        (complex_kind, "do not take"),
    ],
)
def test_other_gradients_are_torchs_business(make: Callable[[], list[Any]], reason: str, reasons_of: Reasons) -> None:
    said = reasons_of("turbo_hydra.catalogs.shared.clip_grad")
    plain, ours = make(), make()
    expected = clip(plain, 0.5)
    with applied(ID):
        found = clip(ours, 0.5)
    assert all(reason in item for item in said)
    assert len(said) == 2
    assert torch.equal(found, expected)


def test_a_generator_of_parameters_and_one_tensor() -> None:
    net = nn.Linear(4, 3)
    net(torch.ones(2, 4)).sum().backward()
    with applied(ID):
        first = clip(net.parameters(), 1e6)
        second = clip(net.weight, 0.1)
    assert first > second > 0
    assert net.weight.grad is not None
    assert float(net.weight.grad.norm()) == pytest.approx(0.1, rel=1e-4)
