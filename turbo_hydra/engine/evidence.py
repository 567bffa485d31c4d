# SPDX-License-Identifier: Apache-2.0
"""Evidence: what an original looked like when a group was validated, and what the object that is there looks like.

A live object is described by the text of its innermost definition, read from its file, and by the chain of layers
around it: text alone is fooled by a wrapper that copies the names of what it wraps, the outermost object alone is blind
to a change of what it wraps.
"""

from __future__ import annotations

import functools
import importlib.machinery
import inspect
import linecache
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from turbo_hydra.engine.artifacts import artifact_hash
from turbo_hydra.engine.canonical import ast_hash, normalised, source_hash
from turbo_hydra.engine.declarations import Place
from turbo_hydra.engine.definitions import Found, SourceIndex, definition_at
from turbo_hydra.engine.loaded_code import CompiledFile, edited_since_start, functions_of_class

_MAX_LAYERS = 32
_EDITED = "its file was edited after it was imported"
UNSEEN = "unseen"
_EXTENSIONS = tuple(importlib.machinery.EXTENSION_SUFFIXES)
_HEAP_TYPE = 1 << 9


@dataclass(frozen=True)
class EvidenceRecord:
    """One validated state of a target.

    Parameters
    ----------
    dist, version : str or None
        Distribution that the target comes from and its public version; None for a file of the model's repository.
    source, ast : str or None
        `source-v1:` and `ast-v1:` hashes.
    chain : tuple[str, ...] or None
        Layers around the definition from outside inwards, each `module:qualname`; None where they could not be seen.
    file : str
        Path of the definition's file below its repository or distribution, for messages.
    artifact : str or None
        `artifact-v1:` hash of an entry that has no Python source.
    """

    dist: str | None = None
    version: str | None = None
    source: str | None = None
    ast: str | None = None
    chain: tuple[str, ...] | None = ()
    file: str = ""
    artifact: str | None = None

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> EvidenceRecord:
        """Read the JSON form, in which an unseen chain is the string "unseen"."""
        chain = data.get("chain", [])
        return cls(**{**data, "chain": None if chain == UNSEEN else tuple(chain)})

    def to_dict(self) -> dict[str, Any]:
        """The JSON form; `artifact` is left out where there is none."""
        data: dict[str, Any] = {
            "dist": self.dist,
            "version": self.version,
            "source": self.source,
            "ast": self.ast,
            "chain": UNSEEN if self.chain is None else list(self.chain),
            "file": self.file,
        }
        if self.artifact is not None:
            data["artifact"] = self.artifact
        return data


@dataclass(frozen=True)
class Layer:
    """One layer around a definition."""

    name: str
    place: Place | None

    def __str__(self) -> str:
        return f"{self.name} ({self.place})" if self.place else self.name


@dataclass(frozen=True)
class LiveEvidence:
    """What an object that is there looks like; hashes are None where `reason` says why.

    `home` is the module whose binaries `artifact` describes; empty where there is none.
    """

    source: str | None
    layers: tuple[Layer, ...]
    place: Place | None
    reason: str = ""
    artifact: str | None = None
    home: str = ""
    tree: Callable[[], str] | None = None

    @functools.cached_property
    def ast(self) -> str | None:
        """The `ast-v1` hash, computed when it is asked for: where the source is equal nobody asks."""
        return self.tree() if self.tree is not None else None

    @property
    def chain(self) -> tuple[str, ...]:
        """The names of the layers."""
        return tuple(layer.name for layer in self.layers)


class LiveReader:
    """Reads evidence of live objects; a file is parsed once, and only where a definition alone does not parse."""

    def __init__(self) -> None:
        self._indexes: dict[str, SourceIndex | str] = {}
        self._compiled: dict[str, CompiledFile | None] = {}

    def read(self, value: object, name: str, module: str = "") -> LiveEvidence:
        """Describe the object `value` that is found under `name`.

        Parameters
        ----------
        value : object
            A raw descriptor: function, class, staticmethod, classmethod, property, cached_property or a wrapper object.
        name : str
            The last part of the target's path.
        module : str
            The module that the target's owner lives in, for an entry of an extension that names none itself.
        """
        if isinstance(value, property):
            accessors = [item for item in (value.fget, value.fset, value.fdel) if item is not None]
            return self._several(accessors, name)
        inner, wrappers = unwrapped(value, name)
        layers = tuple(self._layer(item) for item in wrappers)
        found, place, reason = self._definition(inner)
        if found is None:
            artifact, home = (None, "") if place else _artifact(inner, module)
            if not artifact and not place and not isinstance(inner, type):
                place = self._class(type(inner))[1]  # of an object that can be called: what it is made from
            return LiveEvidence(None, layers, place, "" if artifact else reason, artifact, home)
        return LiveEvidence(source_hash(found.text), layers, place, tree=functools.partial(ast_hash, found.node))

    def _several(self, accessors: list[Any], name: str) -> LiveEvidence:
        parts: list[Found] = []
        layers: list[Layer] = []
        first: Place | None = None
        for accessor in accessors:
            inner, wrappers = unwrapped(accessor, name)
            layers += [self._layer(item) for item in wrappers]
            found, place, reason = self._definition(inner)
            first = first or place
            if found is None:
                return LiveEvidence(None, tuple(layers), place, reason)
            parts.append(found)
        source, tree = joined_hashes(parts)
        return LiveEvidence(source, tuple(layers), first, tree=lambda: tree)

    def _definition(self, value: object) -> tuple[Found | None, Place | None, str]:
        if isinstance(value, types.FunctionType):
            return self._function(value)
        if isinstance(value, type):
            return self._class(value)
        return None, None, f"{_type_name(value)} has no Python source"

    def _function(self, function: types.FunctionType) -> tuple[Found | None, Place | None, str]:
        code = function.__code__
        place = Place(code.co_filename, code.co_firstlineno)
        if code.co_name == "<lambda>":
            return None, place, "a lambda has no definition of its own"
        lines = linecache.getlines(code.co_filename, function.__globals__)
        found = definition_at(lines, code.co_firstlineno, code.co_name)
        if found is None:
            index = self._index(code.co_filename, function.__globals__)
            if isinstance(index, str):
                return None, place, index
            found = index.at(code.co_firstlineno, code.co_name)
        if found is None or not _same_parameters(found, code):
            return None, place, f"line {code.co_firstlineno} of its file does not define '{code.co_name}' (any more)"
        if not self._is_loaded(code):
            return None, place, _EDITED
        return found, place, ""

    def _class(self, cls: type) -> tuple[Found | None, Place | None, str]:
        module = sys.modules.get(cls.__module__)
        file = getattr(module, "__file__", None)
        # A class that C code made may share its name with one in the module's Python file, as those of datetime do.
        if file is None or file.endswith(_EXTENSIONS) or not cls.__flags__ & _HEAP_TYPE:
            return None, None, f"class {cls.__qualname__} has no Python source"
        index = self._index(file, vars(module))
        if isinstance(index, str):
            return None, Place(file, 0), index
        candidates = index.named(cls.__qualname__)
        codes = [item.__code__ for item in functions_of_class(cls) if item.__code__.co_filename == file]
        if not all(self._is_loaded(code) for code in codes):
            return None, Place(file, 0), _EDITED
        lines = {code.co_firstlineno for code in codes}
        for found in candidates:
            if any(found.line <= line <= (found.node.end_lineno or 0) for line in lines):
                return found, Place(file, found.line), ""
        if len(candidates) == 1:
            return candidates[0], Place(file, candidates[0].line), ""
        count = len(candidates)
        return (
            None,
            Place(file, 0),
            f"its file defines class {cls.__qualname__} {count} times; which one it is cannot be told",
        )

    def _is_loaded(self, code: types.CodeType) -> bool:
        """Whether the file still holds the code that was loaded from it."""
        file = code.co_filename
        if file not in self._compiled:
            text = "".join(linecache.getlines(file)) if edited_since_start(file) else None
            self._compiled[file] = None if text is None else CompiledFile(text, file)
        compiled = self._compiled[file]
        return compiled is None or compiled.has(code)

    def _index(self, file: str, namespace: dict[str, Any]) -> SourceIndex | str:
        if file not in self._indexes:
            text = "".join(linecache.getlines(file, namespace))
            if not text:
                self._indexes[file] = f"its source cannot be read (made by exec, or '{file}' is not there)"
            else:
                try:
                    self._indexes[file] = SourceIndex(text)
                except SyntaxError as error:
                    self._indexes[file] = f"'{file}' cannot be parsed by this Python: {error.msg}, line {error.lineno}"
        return self._indexes[file]

    def _layer(self, value: object) -> Layer:
        if not isinstance(value, types.FunctionType):
            return Layer(_type_name(value), None)
        code = value.__code__
        module = value.__globals__.get("__name__", "<unknown>")
        return Layer(f"{module}:{self._qualname(value)}", Place(code.co_filename, code.co_firstlineno))

    def _qualname(self, function: types.FunctionType) -> str:
        # The function's own __qualname__ may be copied from what it wraps; its code's is not, but Python 3.10 has none.
        code = function.__code__
        if hasattr(code, "co_qualname"):
            return str(code.co_qualname)
        index = self._index(code.co_filename, function.__globals__)
        found = None if isinstance(index, str) else index.at(code.co_firstlineno, code.co_name)
        return found.qualname if found else code.co_name


def _artifact(value: object, module: str) -> tuple[str | None, str]:
    name = getattr(value, "__module__", None) or module
    loaded = sys.modules.get(name) if isinstance(name, str) else None
    found = artifact_hash(name, getattr(loaded, "__file__", None)) if loaded is not None else None
    return found, name if found is not None else ""


def unwrapped(value: object, name: str) -> tuple[object, list[object]]:
    """The innermost object behind `value`, and the layers around it from outside inwards.

    A layer names what it wraps by `__wrapped__`, by `func` (partial, cached_property), or by holding in exactly one
    closure cell a function called `name`. The kind that staticmethod and classmethod give is no layer, nor is what a
    method is bound to.
    """
    wrappers: list[object] = []
    if isinstance(value, types.MethodType):
        value = value.__func__
    if isinstance(value, (staticmethod, classmethod)):
        value = value.__func__
    if isinstance(value, functools.cached_property):
        value = value.func
    for _ in range(_MAX_LAYERS):
        inner = _inner(value, name)
        if inner is None:
            break
        wrappers.append(value)
        value = inner
    return value, wrappers


def _inner(value: object, name: str) -> object | None:
    if isinstance(value, type):
        return None
    if isinstance(value, functools.partial):
        return value.func
    is_function = isinstance(value, types.FunctionType)
    wrapped = vars(value).get("__wrapped__") if is_function else inspect.getattr_static(value, "__wrapped__", None)
    if wrapped is not None and not isinstance(wrapped, types.MemberDescriptorType):
        return wrapped  # type: ignore[no-any-return]
    if isinstance(value, types.FunctionType) and value.__closure__:
        held = [cell.cell_contents for cell in value.__closure__ if _holds_function(cell, name)]
        if len(held) == 1:
            return held[0]  # type: ignore[no-any-return]
    return None


def _holds_function(cell: types.CellType, name: str) -> bool:
    try:
        content = cell.cell_contents
    except ValueError:  # an empty cell
        return False
    return type(content) is types.FunctionType and content.__name__ == name


def _same_parameters(found: Found, code: types.CodeType) -> bool:
    """Whether the definition in the file can be the one the code was made from (the file may have changed since)."""
    if not hasattr(found.node, "args"):
        return False
    arguments = found.node.args
    names = [item.arg for item in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    count = code.co_argcount + code.co_kwonlyargcount
    actual = code.co_varnames[:count]
    return len(names) == count and all(
        real == name or (name.startswith("__") and real.endswith(name))
        for name, real in zip(names, actual, strict=True)
    )


def _type_name(value: object) -> str:
    return f"{type(value).__module__}:{type(value).__qualname__}"


def joined_hashes(parts: Sequence[Found]) -> tuple[str, str]:
    """`source-v1` and `ast-v1` of several definitions that make one object, such as the accessors of a property."""
    text = "".join(normalised(part.text) for part in parts)
    return source_hash(text), ast_hash([part.node for part in parts])
