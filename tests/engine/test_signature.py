# SPDX-License-Identifier: Apache-2.0
"""Whether a replacement can be called exactly as the original could."""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable
from inspect import Parameter, Signature
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from turbo_hydra.engine.signature import accepted_by, difference, same_parameters, seen_by_caller


def signature(text: str) -> Signature:
    return inspect.signature(eval(f"lambda {text}: None"))


# Original, replacement, and a piece of what is said about them; None where there is nothing to say.
CASES = [
    ("x, y", "x, y", None),
    ("x, y=1", "x, y=2", None),
    ("x, y", "*args, **kwargs", None),
    ("x, y", "x, *args, **kwargs", None),
    ("x, *, k", "x, **kwargs", None),
    ("x, /", "y, /", None),
    ("*args", "*others", None),
    ("x, **kwargs", "x, *args, **kwargs", None),
    ("self, x", "self, x", None),
    ("", "", None),
    ("x, y, position_ids=None", "x, y", "the original's parameter 'position_ids' is missing"),
    ("x, *, position_ids=None", "x", "the original's keyword 'position_ids' is missing"),
    ("x", "x, y", "the replacement takes 'y', which the original does not"),
    ("x", "x, y=1", "the replacement takes 'y', which the original does not"),
    ("x", "x, *, k=1", "the replacement takes keyword 'k', which the original does not"),
    ("x, y", "y, x", "parameter 1 is called 'x', in the replacement 'y'"),
    ("x, y", "x, z", "parameter 2 is called 'y', in the replacement 'z'"),
    ("x, y=1", "x, y", "parameter 'y' is optional, in the replacement required"),
    ("x, y", "x, y=1", "parameter 'y' is required, in the replacement optional"),
    ("x, *, k=1", "x, *, k", "keyword 'k' is optional, in the replacement required"),
    ("x", "x, /", "is positional or keyword, in the replacement 'x' is positional only"),
    ("x, /", "x", "is positional only, in the replacement 'x' is positional or keyword"),
    ("x, k=1", "x, *, k=1", "the original's parameter 'k' is missing"),
    ("x, *args", "x", "takes any positional arguments (*args), the replacement does not"),
    ("x, **kwargs", "x", "takes any keyword (**kwargs), the replacement does not"),
    ("x, *args, **kwargs", "x, *args", "takes any keyword (**kwargs), the replacement does not"),
    ("x, y", "x, *args", "the original's parameter 'y' is missing"),
    ("x, y", "x, **kwargs", "the original's parameter 'y' is missing"),
]


@pytest.mark.parametrize(("original", "replacement", "said"), CASES)
def test_the_first_difference_that_a_caller_can_see_is_told(original: str, replacement: str, said: str | None) -> None:
    found = difference(signature(original), signature(replacement))
    if said is None:
        assert found is None
    else:
        assert found is not None
        assert said in found


_NAMES = "abcd"
_POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


@st.composite
def _signatures(draw: st.DrawFn) -> Signature:
    names = draw(st.permutations(_NAMES))[: draw(st.integers(0, 4))]
    only = draw(st.integers(0, len(names)))
    both = draw(st.integers(only, len(names)))
    first_default = draw(st.integers(0, both))
    parameters = [
        Parameter(name, _POSITIONAL[index >= only], default=0 if index >= first_default else Parameter.empty)
        for index, name in enumerate(names[:both])
    ]
    if draw(st.booleans()):
        parameters.append(Parameter("args", Parameter.VAR_POSITIONAL))
    for name in names[both:]:
        default = 0 if draw(st.booleans()) else Parameter.empty
        parameters.append(Parameter(name, Parameter.KEYWORD_ONLY, default=default))
    if draw(st.booleans()):
        parameters.append(Parameter("kwargs", Parameter.VAR_KEYWORD))
    return Signature(parameters)


@st.composite
def _pairs(draw: st.DrawFn) -> tuple[Signature, Signature]:
    """An original, and something near it."""
    original = draw(_signatures())
    parameters = list(original.parameters.values())
    change = draw(st.sampled_from(["none", "drop", "generous", "rename", "other"]))
    if change == "drop" and parameters:
        del parameters[draw(st.integers(0, len(parameters) - 1))]
    if change == "rename":
        parameters = [
            item.replace(name=item.name * 2) if item.kind is Parameter.POSITIONAL_ONLY else item for item in parameters
        ]
    if change == "generous":
        kept = draw(st.lists(st.booleans(), min_size=len(parameters), max_size=len(parameters)))
        parameters = [item for item, keep in zip(parameters, kept, strict=True) if keep]
        parameters = [item for item in parameters if item.name not in ("args", "kwargs")]
        where = next((i for i, item in enumerate(parameters) if item.kind is Parameter.KEYWORD_ONLY), len(parameters))
        parameters.insert(where, Parameter("args", Parameter.VAR_POSITIONAL))
        parameters.append(Parameter("kwargs", Parameter.VAR_KEYWORD))
    try:
        return original, draw(_signatures()) if change == "other" else Signature(parameters)
    except ValueError:
        assume(False)
        raise


CALLS = [
    (tuple(range(1, count + 1)), {name: f"={name}" for name in names})
    for count in range(6)
    for size in range(4)
    for names in itertools.combinations((*_NAMES, "z"), size)
]


@functools.cache
def function_of(made: Signature) -> Callable[..., dict[str, Any]]:
    """A function of that signature that returns what it was given; a real call is the judge, not Signature.bind."""
    namespace: dict[str, Any] = {}
    exec(f"def f{made}: return locals()", namespace)
    function: Callable[..., dict[str, Any]] = namespace["f"]
    return function


def bound(made: Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any] | None:
    try:
        return function_of(made)(*args, **kwargs)
    except TypeError:
        return None


def _takes_by_name(made: Signature, name: str) -> bool:
    """Not where a positional-only parameter has the name: a keyword of it goes to `**kwargs`, or nowhere."""
    return name in made.parameters and made.parameters[name].kind is not Parameter.POSITIONAL_ONLY


def _said_once() -> tuple[Signature, Signature]:
    """A pair that the drawing has found: the replacement's second parameter is named as the original's keyword."""
    a, b, c = (Parameter(name, Parameter.POSITIONAL_ONLY, default=0) for name in "abc")
    keyword = Parameter("c", Parameter.KEYWORD_ONLY)
    return Signature([a, b, keyword]), Signature([a, c, Parameter("kwargs", Parameter.VAR_KEYWORD)])


@example(_said_once())
@given(_pairs())
def test_where_no_difference_is_told_every_call_of_the_original_binds_with_the_same_values(
    pair: tuple[Signature, Signature],
) -> None:
    original, replacement = pair
    assume(difference(original, replacement) is None)
    ours = list(replacement.parameters.values())
    for args, kwargs in CALLS:
        theirs = bound(original, args, kwargs)
        if theirs is None:
            continue
        found = bound(replacement, args, kwargs)
        assert found is not None, f"{args} {kwargs} binds to {original} and not to {replacement}"
        for index, (name, parameter) in enumerate(original.parameters.items()):
            if parameter.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD):
                continue
            value = theirs[name]
            if value == 0:  # the default of the original: the replacement has its own
                continue
            if parameter.kind in _POSITIONAL and index < len(ours) and ours[index].kind in _POSITIONAL:
                assert found[ours[index].name] == value
            elif parameter.kind is not Parameter.POSITIONAL_ONLY and _takes_by_name(replacement, name):
                assert found[name] == value
            else:
                taken = (*found.get("args", ()), *found.get("kwargs", {}).values())
                assert value in taken


@given(_signatures())
def test_a_signature_differs_neither_from_itself_nor_from_the_one_that_takes_anything(made: Signature) -> None:
    assert difference(made, made) is None
    assert difference(made, signature("*args, **kwargs")) is None


@given(_signatures(), _signatures())
def test_signatures_that_accept_different_calls_differ_in_one_direction(first: Signature, second: Signature) -> None:
    if difference(first, second) is None and difference(second, first) is None:
        for args, kwargs in CALLS:
            assert (bound(first, args, kwargs) is None) is (bound(second, args, kwargs) is None)


def test_a_caller_sees_what_a_wrapper_wraps_and_the_wrapper_accepts_what_its_code_says() -> None:
    original = eval("lambda x, *, y=1: x")

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return original(*args, **kwargs)

    assert str(seen_by_caller(wrapper)) == "(x, *, y=1)"
    accepted = accepted_by(wrapper)
    assert accepted is not None
    assert list(accepted.parameters) == ["args", "kwargs"]
    wrapper.__signature__ = signature("z")  # type: ignore[attr-defined]
    assert str(seen_by_caller(wrapper)) == "(z)"
    accepted = accepted_by(wrapper)
    assert accepted is not None
    assert list(accepted.parameters) == ["args", "kwargs"]


def test_what_has_no_signature_has_none() -> None:
    assert seen_by_caller(3) is None
    assert accepted_by(type("C", (), {"__signature__": 3})()) is None


class _Called:
    def __call__(self, x: Any, *, k: Any = 1) -> None:
        pass


class _Slotted:
    __slots__ = ()

    def __call__(self, x: Any) -> None:
        pass


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (len, "(obj, /)"),
        (_Called(), "(x: 'Any', *, k: 'Any' = 1) -> 'None'"),
        (_Called.__call__, "(self, x: 'Any', *, k: 'Any' = 1) -> 'None'"),
        (_Slotted(), "(x: 'Any') -> 'None'"),
        (functools.partial(lambda x, y, z=1: None, 1), "(y, z=1)"),
        (dict.get, "(self, key, default=None, /)"),
    ],
    ids=["builtin", "object", "method", "slots", "partial", "slot of C"],
)
def test_whatever_can_be_called_has_its_signature(value: Any, text: str) -> None:
    assert (str(seen_by_caller(value)), str(accepted_by(value))) == (text, text)


@given(_signatures(), _signatures())
def test_what_is_said_of_a_function_is_seen_by_callers_and_changes_nothing_of_what_it_accepts(
    made: Signature, said: Signature
) -> None:
    function: Any = function_of.__wrapped__(made)
    function.__signature__ = said
    assert (seen_by_caller(function), str(accepted_by(function))) == (said, str(made))
    assert function.__signature__ is said


def _seen(made: Signature) -> list[tuple[str, Any, bool]]:
    """What a caller sees; the names of keyword-only parameters in any order, those of *args and **kwargs for nobody."""
    only = Parameter.KEYWORD_ONLY
    items = [(item.name, item.kind, item.default is Parameter.empty) for item in made.parameters.values()]
    return [item for item in items if item[1] is not only] + sorted(item for item in items if item[1] is only)


@given(_pairs())
def test_code_that_takes_the_same_parameters_differs_in_nothing(pair: tuple[Signature, Signature]) -> None:
    first, second = (function_of.__wrapped__(item) for item in pair)
    same = same_parameters(first, second)
    assert same is same_parameters(second, first)
    if same:
        assert _seen(pair[0]) == _seen(pair[1])
        assert difference(*pair) is None
    else:
        assert list(pair[0].parameters.values()) != list(pair[1].parameters.values())
    assert same_parameters(first, function_of.__wrapped__(pair[0])) is True


@pytest.mark.parametrize(("original", "replacement", "said"), CASES)
def test_code_of_functions_that_differ_does_not_take_the_same_parameters(
    original: str, replacement: str, said: str | None
) -> None:
    first, second = (eval(f"lambda {text}: None") for text in (original, replacement))
    same = same_parameters(first, second)
    assert same is same_parameters(second, first)
    assert said is None or not same
    assert same_parameters(first, eval(f"lambda {original}: None")) is True


def test_in_doubt_parameters_are_not_the_same() -> None:
    def plain(x: Any) -> None:
        pass

    def other(x: Any) -> None:
        pass

    class Called:
        def __call__(self, x: Any) -> None:
            pass

    assert same_parameters(plain, other) is True
    for doubtful in (len, Called(), functools.partial(plain), plain.__get__(3)):
        assert same_parameters(plain, doubtful) is False
        assert same_parameters(doubtful, plain) is False
        assert same_parameters(doubtful, doubtful) is False
    other.__wrapped__ = lambda y: None  # type: ignore[attr-defined]
    assert same_parameters(plain, other) is False
    assert same_parameters(other, plain) is False
    assert same_parameters(other, other) is False
