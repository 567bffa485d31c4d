# SPDX-License-Identifier: Apache-2.0
"""A replacement inside the decorators of what it replaces."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

from turbo_hydra import redecorated
from turbo_hydra.engine.dispatch import dispatcher
from turbo_hydra.engine.hits import Hits


def doubling(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*[2 * item for item in args], **kwargs)

    return wrapper


def named(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*args: Any, end: str = "!", **kwargs: Any) -> Any:
            return f"{name}({function(*args, **kwargs)}){end}"

        wrapper.__name__ = function.__name__
        return wrapper

    return decorate


def plain(x: int) -> str:
    """What x is."""
    return f"plain {x}"


def other(inner: Any) -> Callable[..., Any]:
    def plain(x: int) -> str:
        return f"new {x}, was {inner(x)}"

    return plain


def test_what_has_no_decorators_gives_the_replacement_itself() -> None:
    assert redecorated(plain, other)(3) == "new 3, was plain 3"


def test_each_layer_is_put_on_anew_and_the_definition_alone_is_what_guards_fall_back_to() -> None:
    original = named("a")(doubling(named("b")(plain)))
    made = redecorated(original, other)
    assert original(1) == "a(b(plain 2)!)!"
    assert made(1) == "a(b(new 2, was plain 2)!)!"
    assert made(1, end="?") == "a(b(new 2, was plain 2)!)?"
    assert original(1) == "a(b(plain 2)!)!", "the original's own decorators stay as they are"


def test_names_and_marks_of_the_layers_are_kept() -> None:
    original = doubling(plain)
    original.mark = "kept"  # type: ignore[attr-defined]
    made: Any = redecorated(original, other)
    assert (made.__name__, made.__doc__, made.mark) == ("plain", "What x is.", "kept")
    assert made.__wrapped__(3) == "new 3, was plain 3"


def test_a_decorator_that_is_an_object_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="'plain' does not hold what it decorates"):
        redecorated(functools.lru_cache(plain), other)


def test_another_groups_replacement_is_not_looked_through() -> None:
    first = dispatcher(doubling(plain), lambda x: f"first {x}", hits=Hits(), label="a.b c.d")
    assert redecorated(first, other)(3) == "new 3, was first 3"
