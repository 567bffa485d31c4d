# SPDX-License-Identifier: Apache-2.0
"""Shadow mode: the original runs beside the replacement for the first calls, and the two are compared.

Both run on copies, with the same state of the random generators, so that in-place arguments, modules' buffers and the
run's own random numbers stay as they would be without it; the call's result then comes from the replacement on the real
arguments.
"""

from __future__ import annotations

import copy
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._pytree import tree_leaves


class Comparison:
    """What the first calls of one member showed.

    Attributes
    ----------
    calls : int
        How many calls were compared.
    results, gradients : Difference
        Over outputs and in-place changed arguments; over the gradients of inputs and parameters for one random
        cotangent.
    problem : str
        Why a call could not be compared.
    """

    def __init__(self) -> None:
        self.calls = 0
        self.results = Difference()
        self.gradients = Difference()
        self.problem = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data."""
        return {
            "calls": self.calls,
            "results": self.results.to_dict(),
            "gradients": self.gradients.to_dict(),
            "problem": self.problem,
        }


class Difference:
    """Largest differences between pairs of tensors.

    Attributes
    ----------
    tensors : int
        Pairs compared.
    max_abs, max_rel : float
        Largest absolute difference, and largest difference relative to the pair's largest absolute value; in float64.
    bitwise : bool
        Whether every pair is equal bit by bit.
    mismatches : list[str]
        Differences of number, dtype, shape or stride.
    """

    def __init__(self) -> None:
        self.tensors = 0
        self.max_abs = 0.0
        self.max_rel = 0.0
        self.bitwise = True
        self.mismatches: list[str] = []

    def add(self, expected: list[Any], actual: list[Any], what: str) -> None:
        """Compare two lists of tensors (or None) pair by pair."""
        if len(expected) != len(actual):
            self._mismatch(f"{what}: {len(expected)} tensors, the replacement gives {len(actual)}")
            return
        for index, (first, second) in enumerate(zip(expected, actual, strict=True)):
            if (first is None) != (second is None):
                self._mismatch(f"{what} {index}: only {'the replacement' if first is None else 'the original'} has one")
            elif first is not None:
                self._pair(first.detach(), second.detach(), f"{what} {index}")

    def _pair(self, first: torch.Tensor, second: torch.Tensor, what: str) -> None:
        self.tensors += 1
        for name in ("dtype", "shape", "stride"):
            left, right = getattr(first, name), getattr(second, name)
            left, right = (left(), right()) if name == "stride" else (left, right)
            if left != right:
                self._mismatch(f"{what}: {name} {left}, the replacement gives {right}")
                if name == "shape":
                    return
        if first.numel() == 0 or torch.equal(first, second):
            return
        self.bitwise = False
        left, right = first.to(torch.float64), second.to(torch.float64)
        difference = float((left - right).abs().max())
        largest = float(left.abs().max())
        self.max_abs = max(self.max_abs, difference)
        self.max_rel = max(self.max_rel, difference / largest if largest > 0 else float("inf"))

    def _mismatch(self, sentence: str) -> None:
        self.bitwise = False
        if sentence not in self.mismatches:
            self.mismatches.append(sentence)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data."""
        return dict(vars(self))


class MemberShadow:
    """Compares the first calls of one member.

    Parameters
    ----------
    calls : int
        How many.
    """

    def __init__(self, calls: int) -> None:
        self._calls = calls
        self.comparison = Comparison()

    def __call__(self, original: Callable[..., Any], replacement: Callable[..., Any]) -> Callable[..., Any]:
        """`replacement`, whose first calls are compared with `original`."""
        comparison = self.comparison

        def call(*args: Any, **kwargs: Any) -> Any:
            if comparison.calls < self._calls and not comparison.problem:
                comparison.calls += 1
                try:
                    _compare(original, replacement, (args, kwargs), comparison)
                except Exception as error:
                    # What cannot be copied, or run on a copy, says nothing about the real call.
                    comparison.problem = f"{type(error).__name__}: {error}"
            return replacement(*args, **kwargs)

        return call

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data."""
        return self.comparison.to_dict()


def _compare(
    original: Callable[..., Any], replacement: Callable[..., Any], call: tuple[Any, Any], comparison: Comparison
) -> None:
    runs = []
    for function in (original, replacement):
        # Identity hooks on top shield the copies' saved tensors from those of a checkpoint around the call.
        with _random_state_kept(), torch.autograd.graph.saved_tensors_hooks(_same, _same):
            (args, kwargs), tensors = _copied(call)
            outputs = [item for item in tree_leaves(function(*args, **kwargs)) if isinstance(item, torch.Tensor)]
            runs.append((outputs, tensors, _gradients(outputs, tensors)))
    (expected, expected_inputs, expected_gradients), (actual, actual_inputs, actual_gradients) = runs
    comparison.results.add(expected, actual, "output")
    comparison.results.add(expected_inputs, actual_inputs, "argument")
    comparison.gradients.add(expected_gradients, actual_gradients, "gradient")


def _same(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def _copied(call: tuple[Any, Any]) -> tuple[tuple[Any, Any], list[torch.Tensor]]:
    """A deep copy of the arguments, and the tensors in it in the order in which they are found."""
    memo: dict[int, Any] = {}
    tensors = []
    for item in tree_leaves(call):
        if isinstance(item, torch.Tensor) and id(item) not in memo:
            # Tensors inside a graph cannot be deep-copied; a detached copy of the same layout stands in.
            memo[id(item)] = _clone(item)
            tensors.append(memo[id(item)])
    made = copy.deepcopy(call, memo)
    for item in tree_leaves(made):
        if isinstance(item, torch.nn.Module):
            tensors += [*item.parameters(), *item.buffers()]
    return made, list({id(tensor): tensor for tensor in tensors}.values())


def _clone(tensor: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        made = torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device=tensor.device)
        made.copy_(tensor)
    return made.requires_grad_(tensor.requires_grad)


def _gradients(outputs: list[torch.Tensor], inputs: list[torch.Tensor]) -> list[torch.Tensor | None]:
    wanted = [item for item in inputs if item.requires_grad and item.is_leaf]
    given = [item for item in outputs if item.requires_grad and item.is_floating_point()]
    if not wanted or not given:
        return []
    generator = torch.Generator().manual_seed(0)
    cotangents = [
        torch.randn(item.shape, generator=generator, dtype=torch.float32).to(item.device, item.dtype) for item in given
    ]
    return list(torch.autograd.grad(given, wanted, cotangents, allow_unused=True))


@contextmanager
def _random_state_kept() -> Iterator[None]:
    """Put every random generator back to where it was."""
    state, python = torch.get_rng_state(), random.getstate()
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None
    numpy = sys.modules.get("numpy")
    numpy_state = numpy.random.get_state() if numpy is not None else None
    try:
        yield
    finally:
        torch.set_rng_state(state)
        random.setstate(python)
        if cuda is not None:
            torch.cuda.set_rng_state_all(cuda)
        if numpy is not None:
            numpy.random.set_state(numpy_state)
