# SPDX-License-Identifier: Apache-2.0
"""Shadow mode: what it finds, and that it changes nothing of the run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from turbo_hydra.measure.shadow import MemberShadow


def beside(original: Callable[..., Any], replacement: Callable[..., Any], calls: int = 10) -> tuple[Any, MemberShadow]:
    shadow = MemberShadow(calls)
    return shadow(original, replacement), shadow


def test_equal_results_and_gradients_are_told_bitwise() -> None:
    call, shadow = beside(torch.tanh, torch.tanh)
    call(torch.linspace(-1, 1, 7, requires_grad=True))
    found = shadow.to_dict()
    assert found["calls"] == 1
    assert found["results"]["bitwise"]
    assert found["gradients"] == {"tensors": 1, "max_abs": 0.0, "max_rel": 0.0, "bitwise": True, "mismatches": []}


def test_the_largest_differences_are_those_computed_by_hand() -> None:
    call, shadow = beside(lambda x: x * 4.0, lambda x: x * 4.0 + torch.tensor([0.0, 0.5]))
    call(torch.tensor([1.0, 2.0]))
    found = shadow.to_dict()["results"]
    assert (found["max_abs"], found["max_rel"], found["bitwise"]) == (0.5, 0.5 / 8.0, False)


def test_gradients_are_compared_where_results_are_equal() -> None:
    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            return gradient * 3

    call, shadow = beside(lambda x: x * 2, Wrong.apply)
    call(torch.ones(5, requires_grad=True))
    found = shadow.to_dict()
    assert found["results"]["bitwise"]
    assert not found["gradients"]["bitwise"]
    assert found["gradients"]["max_rel"] == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("replacement", "sentence"),
    [
        (lambda x: x.double(), "output 0: dtype torch.float32, the replacement gives torch.float64"),
        (lambda x: x[:1], "output 0: shape torch.Size([2, 3]), the replacement gives torch.Size([1, 3])"),
        (lambda x: x.t().contiguous().t(), "output 0: stride (3, 1), the replacement gives (1, 2)"),
        (lambda x: (x, x), "output: 1 tensors, the replacement gives 2"),
    ],
)
def test_differences_of_kind_are_told(replacement: Callable[..., Any], sentence: str) -> None:
    call, shadow = beside(lambda x: x.clone(), replacement)
    call(torch.arange(6.0).reshape(2, 3))
    assert shadow.to_dict()["results"]["mismatches"] == [sentence]


def test_in_place_arguments_are_changed_once_and_compared() -> None:
    def grows(x: torch.Tensor) -> None:
        x.add_(1)

    def grows_wrongly(x: torch.Tensor) -> None:
        x.add_(2)

    call, shadow = beside(grows, grows_wrongly)
    value = torch.zeros(3)
    call(value)
    assert value.tolist() == [2.0, 2.0, 2.0], "the replacement ran once on the real argument, the original never"
    assert shadow.to_dict()["results"]["max_abs"] == 1.0


def test_random_numbers_go_on_as_without_it() -> None:
    def noisy(x: torch.Tensor) -> torch.Tensor:
        return x + torch.rand(3)

    torch.manual_seed(0)
    plain = [noisy(torch.zeros(3)) for _ in range(3)]
    call, shadow = beside(noisy, noisy, calls=2)
    torch.manual_seed(0)
    shadowed = [call(torch.zeros(3)) for _ in range(3)]
    assert all(torch.equal(left, right) for left, right in zip(plain, shadowed, strict=True))
    assert shadow.to_dict()["results"]["bitwise"], "both sides drew the same numbers"
    assert shadow.to_dict()["calls"] == 2


def test_a_modules_buffers_and_gradients_stay_as_they_would_be() -> None:
    norm, twin = torch.nn.BatchNorm1d(4), torch.nn.BatchNorm1d(4)
    forward = torch.nn.BatchNorm1d.forward
    call, shadow = beside(forward, forward)
    data = torch.randn(8, 4, generator=torch.Generator().manual_seed(0))
    call(norm, data).sum().backward()
    twin(data).sum().backward()
    assert torch.equal(norm.running_mean, twin.running_mean)  # type: ignore[arg-type]
    assert torch.equal(norm.weight.grad, twin.weight.grad)  # type: ignore[arg-type]
    assert int(norm.num_batches_tracked) == 1  # type: ignore[arg-type]
    found = shadow.to_dict()
    assert found["results"]["bitwise"]
    assert found["gradients"]["tensors"] == 2, "weight and bias: the data asks for none"


def test_a_checkpoint_around_the_call_sees_the_same_tensors_as_without_it() -> None:
    call, shadow = beside(torch.sin, torch.sin, calls=1)
    value = torch.ones(3, requires_grad=True)
    checkpoint(call, value, use_reentrant=False).sum().backward()
    assert torch.allclose(value.grad, torch.cos(torch.ones(3)))  # type: ignore[arg-type]
    assert shadow.to_dict()["calls"] == 1


def test_what_cannot_be_copied_is_told_and_the_call_goes_on() -> None:
    class Stubborn:
        def __deepcopy__(self, memo: dict[int, Any]) -> Any:
            raise RuntimeError("never")

    call, shadow = beside(lambda item: 1, lambda item: 2)
    assert call(Stubborn()) == 2
    assert shadow.to_dict()["problem"] == "RuntimeError: never"


def test_an_exception_of_the_replacement_reaches_the_caller() -> None:
    def fails(x: torch.Tensor) -> torch.Tensor:
        raise ValueError("its own")

    call, shadow = beside(torch.tanh, fails)
    with pytest.raises(ValueError, match="its own"):
        call(torch.ones(2))
    assert "ValueError" in shadow.to_dict()["problem"]
