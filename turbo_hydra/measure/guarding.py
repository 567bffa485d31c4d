# SPDX-License-Identifier: Apache-2.0
"""What keeps the meter's work in the midst of a step from doing harm: neither its faults nor the compiler go through.

A fault (a full disk, a surprise in the script's tensors) ends the meter and not the training. And methods and hooks
that run between the graphs of a compiled step are left alone by the compiler, once there is one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ClassVar, Protocol, TypeVar

from turbo_hydra.measure import compiling


class Guarded(Protocol):
    """Has methods that are `harmless`."""

    def give_up(self, error: Exception) -> None:
        """Go on without what failed."""


Hook = TypeVar("Hook", bound=Callable[..., Any])
Method = TypeVar("Method", bound=Callable[..., Any])


class _Shield:
    """What the compiler must leave alone, and whether it has been told."""

    methods: ClassVar[list[str]] = []
    hooks: ClassVar[list[Callable[..., Any]]] = []
    told = False


def harmless(method: Method) -> Method:
    """Let a method's exception end in its object's `give_up`; it returns None then."""
    _Shield.methods.append(method.__name__)

    @functools.wraps(method)
    def guarded(self: Guarded, *args: Any) -> Any:
        if not _Shield.told and compiling.in_use():
            _Shield.told = True
            compiling.shield(type(self), _Shield.methods, _Shield.hooks)
        try:
            return method(self, *args)
        except Exception as error:
            self.give_up(error)
            return None

    return guarded  # type: ignore[return-value]


def between_graphs(hook: Hook) -> Hook:
    """Mark a hook that torch calls in the midst of steps."""
    _Shield.hooks.append(hook)
    return hook
