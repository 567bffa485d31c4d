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


def test_another_groups_replacement_below_a_decorator_is_the_definition() -> None:
    first = dispatcher(doubling(plain), lambda x: f"first {x}", hits=Hits(), label="a.b c.d")
    second = dispatcher(doubling(first), lambda x: f"second {first(x)}", hits=Hits(), label="a.e c.d")
    assert redecorated(named("a")(doubling(first)), other)(3) == "a(new 6, was first 6)!"
    assert redecorated(doubling(second), other)(3) == "new 6, was second first 6"


def keeping(function: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator that uses every part of a function: defaults, a second cell for it, one of its own, an empty one."""
    same, mark = function, "+"
    if mark != "+":
        missing = 0

    def wrapper(x: int, times: int = 3, *, end: str = "!") -> str:
        if times < 0:
            return str(missing)
        return "/".join([function(x)] * times) + mark + str(same(x)) + end

    wrapper.__name__, wrapper.__qualname__ = function.__name__, "Outer.plain"
    wrapper.__module__, wrapper.__doc__ = "somewhere", "Decorated."
    wrapper.__wrapped__ = function  # type: ignore[attr-defined]
    return wrapper


def test_a_layer_that_is_put_on_anew_is_all_that_it_was() -> None:
    original = keeping(plain)
    made = redecorated(original, other)
    new = "new {0}, was plain {0}"
    assert made(1) == "/".join([new.format(1)] * 3) + "+" + new.format(1) + "!"
    assert made(2, 1, end="?") == f"{new.format(2)}+{new.format(2)}?"
    for name in ("__name__", "__qualname__", "__module__", "__doc__", "__defaults__", "__kwdefaults__", "__globals__"):
        assert getattr(made, name) == getattr(original, name)
    with pytest.raises(NameError):
        made(1, -1)
    assert original(1, 1) == "plain 1+plain 1!"


class Calling:
    """A decorator that is an object, and has no name."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.__wrapped__ = function

    def __call__(self, x: int) -> Any:
        return self.__wrapped__(x)


def by_default(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(x: int, function: Callable[..., Any] = function) -> Any:
        return function(x)

    return wrapper


@pytest.mark.parametrize(
    ("original", "name"),
    [(Calling(plain), "Calling"), (by_default(plain), "plain"), (doubling(Calling(plain)), "Calling")],
    ids=["object", "default", "below another"],
)
def test_a_decorator_that_holds_the_definition_elsewhere_is_refused_by_name(original: Any, name: str) -> None:
    with pytest.raises(ValueError, match=f"the decorator '{name}' does not hold what it decorates in its closure"):
        redecorated(original, other)
