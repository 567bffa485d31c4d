# SPDX-License-Identifier: Apache-2.0
"""Numbers that are read late are the same numbers."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.openpi.small import applied, batch, model
from turbo_hydra.catalogs.models.openpi.deferred_metrics import Deferred, DeferredTensor, Shown

ID = "openpi.deferred_metrics"
NUMBERS = st.floats(-1e6, 1e6, width=32)


def deferred(value: float, shown: Shown | None = None) -> Any:
    return Deferred(torch.tensor(value, dtype=torch.float64), shown or Shown())


@given(one=NUMBERS, other=NUMBERS.filter(lambda value: abs(value) > 1e-3))
def test_arithmetic_is_that_of_floats(one: float, other: float) -> None:
    a, b = deferred(one), deferred(other)
    assert (a + b, a - b, a * b, a / b) == (one + other, one - other, one * other, one / other)
    assert (1.5 + a, 1.5 - a, 1.5 * a, 1.5 / b) == (1.5 + one, 1.5 - one, 1.5 * one, 1.5 / other)
    assert (a < b, a <= other, a > b, one >= b, a == one, a != one) == (
        one < other,
        one <= other,
        one > other,
        one >= other,
        True,
        False,
    )
    assert (-a, abs(a), float(a), int(a), bool(a), repr(a)) == (-one, abs(one), one, int(one), bool(one), repr(one))
    assert sum([a, b]) / 2 == (one + other) / 2
    assert f"{a:.4f} {a}" == f"{one:.4f} {one}"


class Late:
    """What an event says of a device that is behind."""

    def __init__(self) -> None:
        self.passed, self.waited = False, False

    def query(self) -> bool:
        return self.passed

    def synchronize(self) -> None:
        self.waited = self.passed = True


def test_as_text_it_is_the_newest_that_has_arrived_and_in_arithmetic_it_is_itself() -> None:
    shown = Shown()
    first, second, third = (deferred(value, shown) for value in (1.0, 2.0, 3.0))
    for number in (first, second, third):
        number._event = Late()
    assert f"{first:.1f}" == "1.0"  # nothing was there: it waits
    assert first._event.waited
    assert f"{second:.1f}" == "1.0"
    second._event.passed = True
    assert f"{third:.1f}" == "2.0"
    assert not third._event.waited
    assert third + 0 == 3.0
    assert third._event.waited


def test_a_loss_is_a_tensor_and_trains() -> None:
    pi0, data = model(), batch()
    torch.manual_seed(3)
    expected = pi0(*data).mean()
    with applied({ID: {}}):
        torch.manual_seed(3)
        losses = pi0(*data)
        assert isinstance(losses, torch.Tensor)
        loss = losses.mean()
        loss.backward()
        norm: Any = torch.nn.utils.clip_grad_norm_(pi0.parameters(), max_norm=1.0)
    assert not isinstance(loss.item(), float)
    assert loss.item() == expected.item()
    assert float(loss) == expected.item()
    assert not isinstance(norm, torch.Tensor)
    gradients = [parameter.grad for parameter in pi0.parameters() if parameter.grad is not None]
    assert float(norm) > 1.0
    assert torch.linalg.vector_norm(torch.stack([g.norm() for g in gradients])) == pytest.approx(1.0, rel=1e-4)
    # What else may be asked of a norm goes to the tensor.
    assert norm.item() == float(norm)
    assert norm.device.type == "cpu"
    assert bool(torch.isfinite(norm))
    assert torch.stack([norm, norm]).shape == (2,)


def test_what_is_saved_is_plain() -> None:
    number = deferred(1.5)
    losses = torch.ones(2).as_subclass(DeferredTensor)
    file = io.BytesIO()
    torch.save({"loss": number, "losses": losses}, file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    assert saved["loss"] == 1.5
    assert type(saved["loss"]) is type(saved["losses"]) is torch.Tensor
    for copied in (pickle.loads(pickle.dumps(number)), copy.deepcopy(number)):
        assert type(copied) is torch.Tensor
        assert copied == 1.5


def test_evaluation_gives_plain_tensors() -> None:
    with applied({ID: {}}):
        assert type(model().eval()(*batch())) is torch.Tensor
