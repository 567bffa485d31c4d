# SPDX-License-Identifier: Apache-2.0
"""The function that stands at a site: it chooses for each call and counts.

It is generated with the target's own parameters, because a generic `(*args, **kwargs)` costs several times the call
that it counts. It holds no state of its own, so that a frame of it which Dynamo compiles is compiled once.
"""

from __future__ import annotations

import inspect
import keyword
import types
from collections.abc import Callable
from inspect import Parameter, Signature
from typing import Any, NoReturn

from turbo_hydra.engine.hits import Hits, register
from turbo_hydra.engine.signature import accepted_by

_STARS: dict[Any, str] = {Parameter.VAR_POSITIONAL: "*", Parameter.VAR_KEYWORD: "**"}
_GENERIC = Signature([Parameter("args", Parameter.VAR_POSITIONAL), Parameter("kwargs", Parameter.VAR_KEYWORD)])
_LRU_METHODS = ("cache_clear", "cache_info", "cache_parameters")


def dispatcher(
    original: Callable[..., Any],
    replacement: Callable[..., Any],
    *,
    hits: Hits | None,
    condition: Callable[..., Any] | None = None,
    label: str = "",
    eager: Callable[..., Any] | None = None,
) -> Callable[..., Any]:
    """Make the function that is installed at a site.

    Parameters
    ----------
    original, replacement : callable
        What a call may go to.
    hits : Hits, optional
        Where calls are counted; None counts nothing.
    condition : callable, optional
        Asked with the call's own arguments; True takes the replacement, False the original, anything else is a
        TypeError.
    label : str
        Group and target, shown as the file name in tracebacks.
    eager : callable, optional
        What is called in place of `replacement` where nothing compiles; needs `hits`.

    Returns
    -------
    callable
        A function with the original's parameters, name, documentation and attributes; `replacement` itself where there
        is nothing to choose and nothing to count.
    """
    if hits is None and condition is None:
        return replacement
    names: dict[str, Any] = {
        "_replacement": hits.count_replacement(eager or replacement, replacement) if hits else replacement,
        "_original": hits.count_original(original) if hits and condition else original,
        "_condition": condition,
        "_require_bool": _require_bool,
        "_label": label,
    }
    receivers = [replacement] if condition is None else [replacement, condition, original]
    function = _generate(original, _parameters(original, receivers, names), names, label)
    _dress(function, original)
    if hits is not None:
        register(function, hits)
    return function


def _parameters(original: Callable[..., Any], receivers: list[Any], names: dict[str, Any]) -> Signature:
    signature = accepted_by(original)
    if signature is None or any(_tells_given_from_default(item) for item in receivers):
        return _GENERIC
    usable = all(name.isidentifier() and not keyword.iskeyword(name) for name in signature.parameters)
    return signature if usable and not names.keys() & signature.parameters.keys() else _GENERIC


def _tells_given_from_default(value: Any) -> bool:
    # What takes **kwargs may look whether a parameter was given: it must get exactly what the caller gave.
    if isinstance(value, types.FunctionType):
        return bool(value.__code__.co_flags & inspect.CO_VARKEYWORDS)
    signature = accepted_by(value)
    return signature is None or any(item.kind is Parameter.VAR_KEYWORD for item in signature.parameters.values())


def _generate(original: Any, signature: Signature, names: dict[str, Any], label: str) -> types.FunctionType:
    name = getattr(original, "__name__", "dispatch")
    name = name if name.isidentifier() and not keyword.iskeyword(name) else "dispatch"
    asynchronous = inspect.iscoroutinefunction(original)
    prefix, wait = ("async ", "await ") if asynchronous else ("", "")
    arguments = _call(signature)
    take = f"return {wait}_replacement({arguments})"
    leave = f"return {wait}_original({arguments})"
    lines = [f"{prefix}def {name}({_head(signature, names)}):"]
    if names["_condition"] is None:
        lines.append(f"    {take}")
    else:
        lines += [
            f"    _chosen = _condition({arguments})",
            f"    if _chosen is True: {take}",
            f"    if _chosen is False: {leave}",
            "    _require_bool(_label, _chosen)",
            f"    if _chosen: {take}",
            f"    {leave}",
        ]
    # The file name is unique to the member: code objects compare by value, and `fallback` finds the member by its code.
    file = f"<turbo_hydra {label} {id(names):x}>"
    exec(compile("\n".join(lines), file, "exec"), names)
    return names[name]  # type: ignore[no-any-return]


def _head(signature: Signature, names: dict[str, Any]) -> str:
    """The parameter list of a `def`; defaults are put into `names`."""
    parts: list[str] = []
    items = list(signature.parameters.values())
    starred = False
    for index, item in enumerate(items):
        if item.kind is Parameter.KEYWORD_ONLY and not starred:
            parts.append("*")
        starred = starred or item.kind in (Parameter.KEYWORD_ONLY, Parameter.VAR_POSITIONAL)
        text = _STARS.get(item.kind, "") + item.name
        if item.default is not Parameter.empty:
            names[f"_default_{index}"] = item.default
            text += f"=_default_{index}"
        parts.append(text)
        following = items[index + 1].kind if index + 1 < len(items) else None
        if item.kind is Parameter.POSITIONAL_ONLY and following is not Parameter.POSITIONAL_ONLY:
            parts.append("/")
    return ", ".join(parts)


def _call(signature: Signature) -> str:
    """The argument list that passes the parameters on."""
    return ", ".join(
        f"{item.name}={item.name}" if item.kind is Parameter.KEYWORD_ONLY else _STARS.get(item.kind, "") + item.name
        for item in signature.parameters.values()
    )


def _dress(function: types.FunctionType, original: Any) -> None:
    for attribute in ("__module__", "__name__", "__qualname__", "__doc__"):
        value = getattr(original, attribute, None)
        if value is not None:
            setattr(function, attribute, value)
    function.__annotations__ = dict(getattr(original, "__annotations__", None) or {})
    for attribute in _LRU_METHODS:
        if hasattr(original, attribute):
            setattr(function, attribute, getattr(original, attribute))
    if isinstance(original, types.FunctionType):
        marks = {key: value for key, value in vars(original).items() if not key.startswith("_torchdynamo")}
        function.__dict__.update(marks)
    function.__wrapped__ = original  # type: ignore[attr-defined]


def _require_bool(label: str, value: object) -> NoReturn:
    raise TypeError(f"{label}: runtime_condition must return a bool, found {value!r} ({type(value).__qualname__})")


def _symbolic_bool(label: str, value: object) -> None:
    """What Dynamo traces instead of `_require_bool`: a comparison of symbolic sizes is neither True nor False to it."""


_require_bool._torchdynamo_inline = _symbolic_bool  # type: ignore[attr-defined]
