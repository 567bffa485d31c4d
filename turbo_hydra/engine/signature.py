# SPDX-License-Identifier: Apache-2.0
"""Whether what is installed can be called exactly as the original could."""

from __future__ import annotations

import inspect
import types
from inspect import Parameter, Signature
from typing import Any

_POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


def seen_by_caller(value: Any) -> Signature | None:
    """The signature that a caller of the original may rely on; None where there is none to read."""
    return _signature(value, follow=True)


def accepted_by(value: Any) -> Signature | None:
    """The signature that `value` really accepts, whatever it wraps; None where there is none to read."""
    if isinstance(value, types.FunctionType) and "__signature__" in vars(value):
        value = _bare(value)
    return _signature(value, follow=False)


def _bare(function: types.FunctionType) -> types.FunctionType:
    """The function without what was said about it: its code alone tells what it accepts."""
    bare = types.FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    bare.__kwdefaults__ = function.__kwdefaults__
    return bare


def _signature(value: Any, *, follow: bool) -> Signature | None:
    if isinstance(value, types.FunctionType) and not hasattr(value, "__wrapped__"):
        follow = False  # the same signature, and the faster way to it
    try:
        return inspect.signature(value, follow_wrapped=follow)
    except (ValueError, TypeError):
        return None


def same_parameters(first: Any, second: Any) -> bool:
    """Whether two plain functions take the same parameters, seen from their code objects alone; False if in doubt."""
    if not (isinstance(first, types.FunctionType) and isinstance(second, types.FunctionType)):
        return False
    if vars(first) or vars(second):  # __wrapped__ and __signature__ say something else than the code
        return False
    return _shape(first) == _shape(second)


def _shape(function: types.FunctionType) -> tuple[Any, ...]:
    code = function.__code__
    flags = code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
    count = code.co_argcount + code.co_kwonlyargcount
    optional = frozenset(function.__kwdefaults__ or ())
    kinds = (code.co_posonlyargcount, code.co_argcount, code.co_kwonlyargcount, flags)
    return (kinds, code.co_varnames[:count], len(function.__defaults__ or ()), optional)


def difference(original: Signature, replacement: Signature) -> str | None:
    """The first difference that a caller can see, in words; None where there is none.

    Parameters are compared by name, kind, order and requiredness, in both directions. Where the replacement takes
    `*args` or `**kwargs` they stand for all parameters of the original that they can receive.
    """
    ours = list(replacement.parameters.values())
    takes_args = any(item.kind is Parameter.VAR_POSITIONAL for item in ours)
    takes_kwargs = any(item.kind is Parameter.VAR_KEYWORD for item in ours)
    theirs = list(original.parameters.values())
    return (
        _positional(theirs, ours, generous=takes_args and takes_kwargs)
        or _keyword_only(theirs, ours, generous=takes_kwargs)
        or _variadic(theirs, takes_args=takes_args, takes_kwargs=takes_kwargs)
    )


def _positional(theirs: list[Parameter], ours: list[Parameter], *, generous: bool) -> str | None:
    expected = [item for item in theirs if item.kind in _POSITIONAL]
    actual = [item for item in ours if item.kind in _POSITIONAL]
    for index, parameter in enumerate(expected):
        if index >= len(actual):
            return None if generous else f"the original's parameter '{parameter.name}' is missing"
        found = actual[index]
        if found.kind is not parameter.kind:
            kinds = f"{_words(parameter)}, in the replacement '{found.name}' is {_words(found)}"
            return f"parameter '{parameter.name}' is {kinds}"
        if found.name != parameter.name and parameter.kind is Parameter.POSITIONAL_OR_KEYWORD:
            return f"parameter {index + 1} is called '{parameter.name}', in the replacement '{found.name}'"
        if _required(found) is not _required(parameter):
            return f"parameter '{parameter.name}' is {_need(parameter)}, in the replacement {_need(found)}"
    if len(actual) > len(expected):
        return f"the replacement takes '{actual[len(expected)].name}', which the original does not"
    return None


def _keyword_only(theirs: list[Parameter], ours: list[Parameter], *, generous: bool) -> str | None:
    expected = {item.name: item for item in theirs if item.kind is Parameter.KEYWORD_ONLY}
    actual = {item.name: item for item in ours if item.kind is Parameter.KEYWORD_ONLY}
    for name, parameter in expected.items():
        if name not in actual:
            if generous:
                continue
            return f"the original's keyword '{name}' is missing"
        if _required(actual[name]) is not _required(parameter):
            return f"keyword '{name}' is {_need(parameter)}, in the replacement {_need(actual[name])}"
    extra = [name for name in actual if name not in expected]
    return f"the replacement takes keyword '{extra[0]}', which the original does not" if extra else None


def _variadic(theirs: list[Parameter], *, takes_args: bool, takes_kwargs: bool) -> str | None:
    for parameter in theirs:
        if parameter.kind is Parameter.VAR_POSITIONAL and not takes_args:
            return f"the original takes any positional arguments (*{parameter.name}), the replacement does not"
        if parameter.kind is Parameter.VAR_KEYWORD and not takes_kwargs:
            return f"the original takes any keyword (**{parameter.name}), the replacement does not"
    return None


def _required(parameter: Parameter) -> bool:
    return parameter.default is Parameter.empty


def _need(parameter: Parameter) -> str:
    return "required" if _required(parameter) else "optional"


def _words(parameter: Parameter) -> str:
    return "positional only" if parameter.kind is Parameter.POSITIONAL_ONLY else "positional or keyword"
