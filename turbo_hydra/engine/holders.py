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


@dataclass(frozen=True)
class Holder:
    """A reference to an original.

    Parameters
    ----------
    original : object
        What is held.
    kind : {"module", "class", "mapping", "sequence", "partial", "default"}
        How it is held.
    owner : object
        The module, class, container, partial or function that holds it.
    name : str
        Name, key or position in the owner.
    place : str
        Module and path, for the report.
    """

    original: Any
    kind: str
    owner: Any
    name: str
    place: str


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
            yield Holder(value, "module", module, name, f"{module_name}.{name}")
            continue
        kind = type(value)
        path = f"{module_name}.{name}"
        if kind is types.FunctionType:
            yield from _in_defaults(path, value, originals)
        elif issubclass(kind, type):
            if value.__module__ == module_name and id(value) not in seen:
                seen.add(id(value))
                yield from _in_class(path, value, originals, seen)
        elif kind in _MAPPINGS or kind in _SEQUENCES:
            yield from _in_container(path, value, originals)
        elif kind is functools.partial and id(value.func) in originals:
            yield Holder(value.func, "partial", value, "func", path)


def _in_class(path: str, cls: type, originals: Mapping[int, Any], seen: set[int]) -> Iterator[Holder]:
    for name, value in list(_TYPE_DICT.__get__(cls).items()):
        kind = type(value)
        inner = value.__func__ if kind is staticmethod or kind is classmethod else value
        if id(value) in originals or id(inner) in originals:
            yield Holder(value if id(value) in originals else inner, "class", cls, name, f"{path}.{name}")
        elif kind is types.FunctionType:
            yield from _in_defaults(f"{path}.{name}", value, originals)
        elif issubclass(kind, type) and id(value) not in seen and value.__qualname__.startswith(cls.__qualname__ + "."):
            seen.add(id(value))
            yield from _in_class(f"{path}.{name}", value, originals, seen)
        elif kind in _MAPPINGS or kind in _SEQUENCES:
            yield from _in_container(f"{path}.{name}", value, originals)


def _in_container(path: str, container: Any, originals: Mapping[int, Any]) -> Iterator[Holder]:
    if type(container) in _MAPPINGS:
        for key, value in list(container.items()):
            if id(value) in originals:
                yield Holder(value, "mapping", container, key, f"{path}[{key!r}]")
    else:
        for position, value in enumerate(list(container)):
            if id(value) in originals:
                yield Holder(value, "sequence", container, str(position), f"{path}[{position}]")


def _in_defaults(path: str, function: types.FunctionType, originals: Mapping[int, Any]) -> Iterator[Holder]:
    for position, value in enumerate(function.__defaults__ or ()):
        if id(value) in originals:
            yield Holder(value, "default", function, str(position), f"{path}(default {position})")
    for name, value in (function.__kwdefaults__ or {}).items():
        if id(value) in originals:
            yield Holder(value, "default", function, name, f"{path}({name}=)")
