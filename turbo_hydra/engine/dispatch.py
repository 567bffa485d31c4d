# SPDX-License-Identifier: Apache-2.0
"""The function that stands at a site: it chooses for each call and counts.

It is generated with the target's own parameters, because a generic `(*args, **kwargs)` costs several times the call
that it counts. It holds no state of its own, so that a frame of it which Dynamo compiles is compiled once.
"""

from __future__ import annotations

import builtins
import functools
import inspect
import keyword
import types
from collections.abc import Callable, Mapping
from inspect import Parameter, Signature
from typing import Any, NoReturn

from turbo_hydra.engine.hits import Hits, left_to_interpreter, register, traced_as
from turbo_hydra.engine.kinds import CACHE_TYPE
from turbo_hydra.engine.signature import accepted_by

_STARS: dict[Any, str] = {Parameter.VAR_POSITIONAL: "*", Parameter.VAR_KEYWORD: "**"}
_GENERIC = Signature([Parameter("args", Parameter.VAR_POSITIONAL), Parameter("kwargs", Parameter.VAR_KEYWORD)])


def dispatcher(
    original: Callable[..., Any],
    replacement: Callable[..., Any],
    *,
    hits: Hits | None,
    condition: Callable[..., Any] | None = None,
    label: str = "",
    eager: Callable[..., Any] | None = None,
    may_compile: bool = True,
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
        What is called in place of `replacement` where nothing compiles.
    may_compile : bool
        Whether the replacement may run under `torch.compile`; otherwise a compiled caller breaks its graph there, and
        the replacement runs as it does in eager code.

    Returns
    -------
    callable
        A function with the original's parameters, name, documentation and attributes; `replacement` itself where there
        is nothing to choose and nothing to count.
    """
    carried = _caches(original, replacement) or _parts(original, replacement)
    has_its_own = isinstance(original, functools.partial) and isinstance(replacement, functools.partial)
    if hits is None and condition is None and may_compile and (has_its_own or not carried):
        return replacement
    receivers = [replacement] if condition is None else [replacement, condition, original]
    signature = _parameters(original, receivers)
    own = _prefix(set(signature.parameters))
    taken = replacement if eager is None else traced_as(eager, replacement)
    names: dict[str, Any] = {
        f"{own}replacement": taken if may_compile else left_to_interpreter(taken),
        f"{own}original": original,
        f"{own}condition": condition,
        f"{own}require_bool": _require_bool,
        f"{own}label": label,
        "__builtins__": vars(builtins),
    }
    if hits is not None:
        names[f"{own}took"] = hits.counter_of_replacement(may_compile=may_compile)
    if hits is not None and condition is not None:
        names[f"{own}left"] = hits.counter_of_original()
    function = _generate(original, signature, names, own)
    _dress(function, original)
    vars(function).update(carried)
    if hits is not None:
        register(function, hits)
    return function


def _parameters(original: Callable[..., Any], receivers: list[Any]) -> Signature:
    signature = accepted_by(original)
    if signature is None or any(_tells_given_from_default(item) for item in receivers):
        return _GENERIC
    return _GENERIC if any(map(keyword.iskeyword, signature.parameters)) else signature


def _prefix(taken: set[str]) -> str:
    """What our own names in the generated function begin with: nothing that the target uses."""
    prefix = "_turbo_"
    while any(name.startswith(prefix) for name in taken):
        prefix = "_" + prefix
    return prefix


def _tells_given_from_default(value: Any) -> bool:
    # What takes **kwargs may look whether a parameter was given: it must get exactly what the caller gave.
    if isinstance(value, types.FunctionType):
        return bool(value.__code__.co_flags & inspect.CO_VARKEYWORDS)
    signature = accepted_by(value)
    return signature is None or any(item.kind is Parameter.VAR_KEYWORD for item in signature.parameters.values())


def _generate(original: Any, signature: Signature, names: dict[str, Any], own: str) -> types.FunctionType:
    prefix, begin, end = "", "return ", ""
    if inspect.iscoroutinefunction(original):
        prefix, begin = "async ", "return await "
    elif inspect.isgeneratorfunction(original):
        begin, end = "return (yield from ", ")"
    arguments = _call(signature)
    counted = f"{own}took" in names
    body = [f"{own}took()"] * counted + [f"{begin}{own}replacement({arguments}){end}"]
    if names[f"{own}condition"] is not None:
        body = [
            f"{own}chosen = {own}condition({arguments})",
            f"if {own}chosen is not True and {own}chosen is not False:",
            f"    {own}require_bool({own}label, {own}chosen)",
            f"if {own}chosen:",
            *(f"    {line}" for line in body),
            *([f"{own}left()"] * counted),
            f"{begin}{own}original({arguments}){end}",
        ]
    code = _compiled("\n    ".join([f"{prefix}def dispatch({_head(signature)}):", *body]))
    called = getattr(original, "__name__", None)
    name = called if isinstance(called, str) else code.co_name  # a proxy has an answer to everything
    # For tracebacks and profilers; Python 3.10 has no co_qualname.
    named: Any = {key: name for key in ("co_name", "co_qualname") if hasattr(code, key)}
    code = code.replace(co_filename=f"<turbo_hydra {names[f'{own}label']}>", **named)
    # For a frame whose file it does not know, `inspect.stack()` looks through all modules: tens of milliseconds a call.
    inspect.modulesbyfile.setdefault(code.co_filename, __name__)
    parameters = signature.parameters.values()
    defaults = {item.name: item.default for item in parameters if item.default is not Parameter.empty}
    keywords = {item.name for item in parameters if item.kind is Parameter.KEYWORD_ONLY}
    positional = tuple(value for key, value in defaults.items() if key not in keywords)
    function = types.FunctionType(code, names, name, positional or None)
    function.__kwdefaults__ = {key: value for key, value in defaults.items() if key in keywords} or None
    return function


@functools.cache
def _compiled(text: str) -> types.CodeType:
    """The code of the one function that a text defines; many targets have equal parameters."""
    namespace: dict[str, Any] = {}
    exec(compile(text, "<turbo_hydra>", "exec"), namespace)
    code: types.CodeType = namespace["dispatch"].__code__
    return code


def _head(signature: Signature) -> str:
    """The parameter list of a `def`, without defaults, which are a function's and not its code's."""
    parts: list[str] = []
    items = list(signature.parameters.values())
    starred = False
    for index, item in enumerate(items):
        if item.kind is Parameter.KEYWORD_ONLY and not starred:
            parts.append("*")
        starred = starred or item.kind in (Parameter.KEYWORD_ONLY, Parameter.VAR_POSITIONAL)
        parts.append(_STARS.get(item.kind, "") + item.name)
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
    for attribute in ("__module__", "__qualname__", "__doc__"):
        value = getattr(original, attribute, None)
        if isinstance(value, str):
            setattr(function, attribute, value)
    annotations = getattr(original, "__annotations__", None)
    function.__annotations__ = dict(annotations) if isinstance(annotations, Mapping) else {}
    if isinstance(original, types.FunctionType):
        marks = {key: value for key, value in vars(original).items() if not key.startswith("_torchdynamo")}
        function.__dict__.update(marks)
    function.__wrapped__ = original  # type: ignore[attr-defined]


def _caches(original: Any, replacement: Any) -> dict[str, Any]:
    """The methods of `functools.lru_cache` that callers of the original may use, where the replacement lacks them.

    They are those of the replacement where it has them; clearing clears both, since both may run.
    """
    if not isinstance(original, CACHE_TYPE):
        return {}
    newer = replacement if isinstance(replacement, CACHE_TYPE) else original

    def cache_clear() -> None:
        original.cache_clear()
        newer.cache_clear()

    return {
        "cache_clear": cache_clear,
        "cache_info": newer.cache_info,
        "cache_parameters": newer.cache_parameters,
    }


def _parts(original: Any, replacement: Any) -> dict[str, Any]:
    """What callers may ask of a `functools.partial`; it is that of the replacement where that is one too."""
    if not isinstance(original, functools.partial):
        return {}
    newer = replacement if isinstance(replacement, functools.partial) else original
    parts = {"func": newer.func, "args": newer.args, "keywords": newer.keywords}
    return {**parts, **vars(original), **vars(newer)}


def _require_bool(label: str, value: object) -> NoReturn:
    raise TypeError(f"{label}: runtime_condition must return a bool, found {value!r} ({type(value).__qualname__})")


def _symbolic_bool(label: str, value: object) -> None:
    """What Dynamo traces instead of `_require_bool`: a comparison of symbolic sizes is neither True nor False to it."""


_require_bool._torchdynamo_inline = _symbolic_bool  # type: ignore[attr-defined]
