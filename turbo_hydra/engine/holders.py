# SPDX-License-Identifier: Apache-2.0
"""References to originals that nobody declared: one pass over the loaded modules, for all originals at once.

Only `vars()` of modules and classes is read, and types are compared with `type()`: `hasattr`, `getattr` and
`isinstance` would wake lazy modules and proxies.
"""

from __future__ import annotations

import functools
import sys
import types
from collections import OrderedDict, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_MAPPINGS = (dict, OrderedDict, defaultdict)
_SEQUENCES = (list, tuple, set, frozenset)
_MODULE_DICT: Any = vars(types.ModuleType)["__dict__"]
_TYPE_DICT: Any = vars(type)["__dict__"]
_QUALNAME: Any = vars(type)["__qualname__"]
# What is put around a function without changing it.
_AROUND: dict[type, str] = {
    types.MethodType: "method",
    functools.partial: "partial",
    staticmethod: "class",
    classmethod: "class",
}


@dataclass(frozen=True)
class Holder:
    """A reference to an original.

    Parameters
    ----------
    original : object
        What is held.
    kind : {"module", "class", "mapping", "sequence", "partial", "method", "default", "closure"}
        How it is held.
    owner : object
        The module, class, container or function that holds it.
    name : str
        Name, key or position in the owner.
    place : str
        Module and path, for the report.
    module : str
        Name of the module.
    """

    original: Any
    kind: str
    owner: Any
    name: str
    place: str
    module: str


def find(originals: Mapping[int, Any]) -> list[Holder]:
    """All holders of the objects whose ids are the keys of `originals`."""
    if not originals:
        return []
    found: list[Holder] = []
    seen: set[int] = set()
    for module_name, module in list(sys.modules.items()):
        if not issubclass(type(module), types.ModuleType) or id(module) in seen:
            continue
        seen.add(id(module))
        found += _in_module(module_name, module, _MODULE_DICT.__get__(module), originals, seen)
    return found


def _in_module(
    module_name: str, module: Any, namespace: dict[str, Any], originals: Mapping[int, Any], seen: set[int]
) -> Iterator[Holder]:
    for name, value in list(namespace.items()):
        if id(value) in originals:
            yield Holder(value, "module", module, name, f"{module_name}.{name}", module_name)
        else:
            yield from _in_value(module_name, f"{module_name}.{name}", module, name, value, originals, seen)


def _in_value(
    module_name: str, path: str, owner: Any, name: str, value: Any, originals: Mapping[int, Any], seen: set[int]
) -> Iterator[Holder]:
    """What `value`, which a module or a class holds and which is no original itself, holds in its turn."""
    kind = type(value)
    if kind is types.FunctionType:
        yield from _in_function(module_name, path, value, originals)
    elif issubclass(kind, type):
        if id(value) not in seen and _is_home(value, owner, module_name):
            seen.add(id(value))
            yield from _in_class(module_name, path, value, originals, seen)
    elif kind in _MAPPINGS or kind in _SEQUENCES:
        yield from _in_container(module_name, path, value, originals)
    elif kind in _AROUND:
        inner = _inside(value, originals)
        if inner is not None:
            yield Holder(inner, _AROUND[kind], owner, name, path, module_name)


def _is_home(cls: type, owner: Any, module_name: str) -> bool:
    """Whether a class is held where it was defined: a class is looked into once, there."""
    if issubclass(type(owner), type):
        return bool(_QUALNAME.__get__(cls).startswith(_QUALNAME.__get__(owner) + "."))
    return bool(_TYPE_DICT.__get__(cls).get("__module__") == module_name)


def _inside(value: Any, originals: Mapping[int, Any]) -> Any:
    """The original inside a bound method, partial, staticmethod or classmethod; None where there is none."""
    while type(value) in _AROUND:
        value = value.func if type(value) is functools.partial else value.__func__
        if id(value) in originals:
            return value
    return None


def _in_class(module_name: str, path: str, cls: type, originals: Mapping[int, Any], seen: set[int]) -> Iterator[Holder]:
    for name, value in list(_TYPE_DICT.__get__(cls).items()):
        if id(value) in originals:
            yield Holder(value, "class", cls, name, f"{path}.{name}", module_name)
        else:
            yield from _in_value(module_name, f"{path}.{name}", cls, name, value, originals, seen)


def _in_container(module_name: str, path: str, container: Any, originals: Mapping[int, Any]) -> Iterator[Holder]:
    mapping = type(container) in _MAPPINGS
    for key, value in list(container.items() if mapping else enumerate(container)):
        held = value if id(value) in originals else _inside(value, originals) if type(value) in _AROUND else None
        if held is not None:
            kind = "mapping" if mapping else "sequence"
            yield Holder(held, kind, container, str(key), f"{path}[{key!r}]", module_name)


def _in_function(
    module_name: str, path: str, function: types.FunctionType, originals: Mapping[int, Any]
) -> Iterator[Holder]:
    for position, value in enumerate(function.__defaults__ or ()):
        if id(value) in originals:
            yield Holder(value, "default", function, str(position), f"{path}(default {position})", module_name)
    for name, value in (function.__kwdefaults__ or {}).items():
        if id(value) in originals:
            yield Holder(value, "default", function, name, f"{path}({name}=)", module_name)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            value = cell.cell_contents
        except ValueError:  # an empty cell
            continue
        if id(value) in originals:
            yield Holder(value, "closure", function, name, f"{path}(closure of {name})", module_name)
