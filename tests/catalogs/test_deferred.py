# SPDX-License-Identifier: Apache-2.0
"""A deferred number is used like the float that it stands for, and is waited for no earlier."""

from __future__ import annotations

import copy
import math
import operator
import pickle
from typing import Any

import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.catalogs.conftest import Reasons
from tests.catalogs.patching import applied
from turbo_hydra.catalogs.shared.deferred import DeferredNumber, fetch
from turbo_hydra.catalogs.torch.deferred_item import defer

numbers = st.floats(allow_nan=False, allow_infinity=False, width=32)
BINARY = [operator.add, operator.sub, operator.mul, operator.eq, operator.ne, operator.lt, operator.le, operator.gt]


def deferred(value: float) -> DeferredNumber:
    return DeferredNumber(lambda: value)


@given(numbers, numbers, st.sampled_from(BINARY))
def test_calculating_and_comparing_give_what_floats_give(first: float, second: float, function: Any) -> None:
    expected = function(first, second)
    for pair in ((deferred(first), deferred(second)), (deferred(first), second), (first, deferred(second))):
        found = function(*pair)
        assert type(found) is DeferredNumber or type(found) is type(expected)
        assert found == expected


@pytest.mark.parametrize("function", [abs, round, math.floor, math.ceil, math.trunc, float, int, bool, hash, str, repr])
def test_functions_of_one_number(function: Any) -> None:
    assert function(deferred(-2.75)) == function(-2.75)


def test_formatting_copying_and_arrays() -> None:
    number = deferred(0.123456)
    assert (f"{number:.3f}", f"{number}", f"{number!r:>10}") == ("0.123", "0.123456", "  0.123456")
    assert numpy.asarray(number).item() == 0.123456
    assert numpy.mean([number, deferred(0.2)]) == numpy.mean([0.123456, 0.2])
    for copied in (pickle.loads(pickle.dumps(number)), copy.deepcopy(number)):
        assert type(copied) is float
        assert copied == 0.123456
    assert torch.tensor(float(number)).item() == pytest.approx(0.123456)


@given(st.lists(numbers, min_size=1, max_size=8))
def test_a_running_sum_is_not_waited_for_and_is_the_scripts_sum(values: list[float]) -> None:
    waited: list[float] = []

    def arriving(value: float) -> DeferredNumber:
        return DeferredNumber(lambda: waited.append(value) or value)  # type: ignore[func-returns-value]

    total, expected = 0.0, 0.0
    for value in values:
        total += arriving(value)
        expected += value
    assert waited == []
    assert float(total) == expected, "bit by bit"
    assert float(total) == expected
    assert waited == values, "each once"


def test_the_number_is_that_of_the_call() -> None:
    loss = torch.tensor(3.0)
    number = DeferredNumber(fetch(loss))
    loss.fill_(5.0)
    assert number.item() == 3.0


def test_a_loss_whose_item_is_deferred() -> None:
    weight = torch.tensor(2.0, requires_grad=True)
    loss = weight * 3.0
    loss.backward()
    defer(loss)
    number: Any = loss.item()
    assert type(number) is DeferredNumber
    assert f"{number:.1f}" == f"{loss:.1f}" == "6.0"
    assert type((weight * 1.0).item()) is float, "no other tensor's"


def test_on_a_cpu_item_stays_what_it_is(reasons_of: Reasons) -> None:
    said = reasons_of("turbo_hydra.catalogs.torch.deferred_item")
    loss = torch.tensor(2.0, requires_grad=True) * 3.0
    with applied("torch.deferred_item"):
        loss.backward()
    assert type(loss.item()) is float
    assert said == ["on the host already"]
