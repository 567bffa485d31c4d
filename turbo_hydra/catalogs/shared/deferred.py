# SPDX-License-Identifier: Apache-2.0
"""A number that is still on its way from a device; it is waited for when somebody needs it."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def fetch(value: Tensor) -> Callable[[], float]:
    """Begin copying a scalar to the host; the function returned waits for it.

    The number is the one of now: what is written to `value` later does not change it.
    """
    if value.device.type == "cpu":
        number = float(Tensor.__float__(value))
        return lambda: number
    host = torch.empty((), dtype=value.dtype, pin_memory=True)
    host.copy_(value.detach().reshape(()), non_blocking=True)
    arrived = torch.accelerator.current_stream(value.device).record_event()

    def wait() -> float:
        arrived.synchronize()
        return float(Tensor.__float__(host))

    return wait


class DeferredNumber:
    """Stands for the float that `item()` gives; sums of such and of floats are deferred, all else waits.

    Sums are made from left to right in Python's floats, as the script would have made them. It is no `float`, and
    `isinstance` says so: a logger that asks for one gets none. `item()`, `float()`, formatting, comparing, calculating
    and `numpy.asarray` give the float.
    """

    __slots__ = ("_terms", "_value")

    def __init__(self, *terms: Callable[[], float] | float) -> None:
        self._terms = terms
        self._value: float | None = None

    def item(self) -> float:
        """The float, waited for."""
        if self._value is None:
            numbers = [term if isinstance(term, (int, float)) else term() for term in self._terms]
            total = numbers[0]
            for number in numbers[1:]:
                total += number
            self._value, self._terms = total, ()
        return self._value

    def __add__(self, other: Any) -> Any:
        if isinstance(other, (int, float, DeferredNumber)):
            return DeferredNumber(self.item, other.item if isinstance(other, DeferredNumber) else other)
        return self.item() + other

    def __radd__(self, other: Any) -> Any:
        if isinstance(other, (int, float)):
            return DeferredNumber(other, self.item)
        return other + self.item()

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __bool__(self) -> bool:
        return bool(self.item())

    def __hash__(self) -> int:
        return hash(self.item())

    def __repr__(self) -> str:
        return repr(self.item())

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec)

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        import numpy

        return numpy.asarray(self.item(), *args, **kwargs)

    def __reduce__(self) -> Any:
        return (float, (self.item(),))

    def __deepcopy__(self, memo: Any) -> float:
        return self.item()


def _binary(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def method(self: DeferredNumber, other: Any) -> Any:
        return function(self.item(), other.item() if isinstance(other, DeferredNumber) else other)

    return method


def _reflected(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def method(self: DeferredNumber, other: Any) -> Any:
        return function(other, self.item())

    return method


def _unary(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def method(self: DeferredNumber) -> Any:
        return function(self.item())

    return method


for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    setattr(DeferredNumber, f"__{_name}__", _binary(getattr(operator, _name)))
for _name in ("sub", "mul", "truediv", "floordiv", "mod", "pow"):
    setattr(DeferredNumber, f"__{_name}__", _binary(getattr(operator, _name)))
    setattr(DeferredNumber, f"__r{_name}__", _reflected(getattr(operator, _name)))
for _name in ("neg", "pos", "abs"):
    setattr(DeferredNumber, f"__{_name}__", _unary(getattr(operator, _name)))
for _name, _function in (("round", round), ("trunc", math.trunc), ("floor", math.floor), ("ceil", math.ceil)):
    setattr(DeferredNumber, f"__{_name}__", _unary(_function))
