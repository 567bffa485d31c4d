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
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

_MAPPINGS = (dict, OrderedDict, defaultdict)
_SEQUENCES = (list, tuple, set, frozenset)
_PLAIN = (
    str,
    bytes,
    int,
    float,
    bool,
    type(None),
    types.ModuleType,
    types.BuiltinFunctionType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
    types.WrapperDescriptorType,
)
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
    scan = _Scan(originals)
    for name, module in list(sys.modules.items()):
        if issubclass(type(module), types.ModuleType) and id(module) not in scan.seen:
            scan.seen.add(id(module))
            scan.module = name
            scan.namespace("module", module, name, _MODULE_DICT.__get__(module))
    return scan.found


class _Scan:
    """One pass: what is looked for, what was found, and the module that is looked at.

    It is a loop over everything that is loaded: what cannot hold a function is told by the identity of its type, and a
    container is compared as a whole before it is looked into.
    """

    def __init__(self, originals: Mapping[int, Any]) -> None:
        self.wanted = frozenset(originals)
        self.found: list[Holder] = []
        self.seen: set[int] = set()
        self.module = ""

    def namespace(self, kind: str, owner: Any, path: str, namespace: Mapping[str, Any]) -> None:
        """Look at all names that a module or a class holds."""
        wanted = self.wanted
        for name, value in list(namespace.items()):
            if id(value) in wanted:
                self._add(value, kind, owner, name, f"{path}.{name}")
                continue
            kind_of_value = type(value)
            if id(kind_of_value) in _PLAIN_IDS:
                continue
            look = _LOOK.get(id(kind_of_value))
            if look is not None:
                look(self, owner, path, name, value)
            elif issubclass(kind_of_value, type):
                self._class(owner, f"{path}.{name}", value)

    def _add(self, held: Any, kind: str, owner: Any, name: str, place: str) -> None:
        self.found.append(Holder(held, kind, owner, name, place, self.module))

    def _class(self, owner: Any, path: str, cls: type) -> None:
        # A class is looked into once, where it was defined.
        if id(cls) in self.seen:
            return
        if issubclass(type(owner), type):
            at_home = _QUALNAME.__get__(cls).startswith(_QUALNAME.__get__(owner) + ".")
        else:
            at_home = _TYPE_DICT.__get__(cls).get("__module__") == self.module
        if at_home:
            self.seen.add(id(cls))
            self.namespace("class", cls, path, _TYPE_DICT.__get__(cls))

    def around(self, owner: Any, path: str, name: str, value: Any) -> None:
        """A bound method, partial, staticmethod or classmethod."""
        inner = self._inside(value)
        if inner is not None:
            self._add(inner, _AROUND[type(value)], owner, name, f"{path}.{name}")

    def _inside(self, value: Any) -> Any:
        while id(type(value)) in _AROUND_IDS:
            value = value.func if type(value) is functools.partial else value.__func__
            if id(value) in self.wanted:
                return value
        return None

    def mapping(self, owner: Any, path: str, name: str, value: Any) -> None:
        """The values of a dictionary."""
        if self._may_hold(value.values):
            for key, item in list(value.items()):
                self._item("mapping", value, key, f"{path}.{name}", item)

    def sequence(self, owner: Any, path: str, name: str, value: Any) -> None:
        """The elements of a list, tuple or set."""
        if self._may_hold(value.__iter__):
            for position, item in enumerate(list(value)):
                self._item("sequence", value, position, f"{path}.{name}", item)

    def _may_hold(self, values: Any) -> bool:
        if not self.wanted.isdisjoint(map(id, values())):
            return True
        return not _AROUND_IDS.isdisjoint(map(id, map(type, values())))

    def _item(self, kind: str, container: Any, key: Any, path: str, item: Any) -> None:
        held = item if id(item) in self.wanted else self._inside(item)
        if held is not None:
            self._add(held, kind, container, str(key), f"{path}[{key!r}]")

    def function(self, owner: Any, path: str, name: str, value: Any) -> None:
        """The defaults and the closure of a function."""
        if value.__defaults__ is not None:
            for position, item in enumerate(value.__defaults__):
                if id(item) in self.wanted:
                    self._add(item, "default", value, str(position), f"{path}.{name}(default {position})")
        if value.__kwdefaults__:
            for keyword, item in value.__kwdefaults__.items():
                if id(item) in self.wanted:
                    self._add(item, "default", value, keyword, f"{path}.{name}({keyword}=)")
        if value.__closure__ is not None:
            for variable, cell in zip(value.__code__.co_freevars, value.__closure__, strict=True):
                try:
                    item = cell.cell_contents
                except ValueError:  # an empty cell
                    continue
                if id(item) in self.wanted:
                    self._add(item, "closure", value, variable, f"{path}.{name}(closure of {variable})")


# By the identity of a value's type: a metaclass may define what its classes are equal to.
_AROUND_IDS = frozenset(map(id, _AROUND))

_PLAIN_IDS = frozenset(map(id, _PLAIN))
_LOOK: dict[int, Callable[[_Scan, Any, str, str, Any], None]] = {
    **dict.fromkeys(_AROUND_IDS, _Scan.around),
    **dict.fromkeys(map(id, _MAPPINGS), _Scan.mapping),
    **dict.fromkeys(map(id, _SEQUENCES), _Scan.sequence),
    id(types.FunctionType): _Scan.function,
}
