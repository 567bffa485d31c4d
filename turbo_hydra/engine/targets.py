# SPDX-License-Identifier: Apache-2.0
"""From a dotted path to the site where the object lives."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import types
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, Final

from turbo_hydra.engine.kinds import kind_of

ABSENT: Final = object()


class ResolutionError(Exception):
    """A path leads to no site.

    Attributes
    ----------
    code : str
        `target.missing`, `target.import_error`, `target.immutable`, `target.foreign_owner`.
    owner : object or None
        For `target.foreign_owner`: what the path leads to.
    """

    def __init__(self, code: str, message: str, owner: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.owner = owner


@dataclass(frozen=True)
class Site:
    """Where a target lives once resolved.

    Parameters
    ----------
    path : str
        The path that was resolved.
    owner : object
        The module, class or mapping that holds the name.
    name : str
        Attribute name or key.
    raw : object
        The raw descriptor that a look-up of the name finds first; never bound.
    own : bool
        Whether the owner holds the name itself, rather than inheriting it or making it on demand.
    kind : str
        One of `turbo_hydra.engine.kinds`.
    """

    path: str
    owner: Any
    name: str
    raw: Any
    own: bool
    kind: str

    @property
    def key(self) -> tuple[int, str]:
        """Identity of the site: equal for all paths that lead here."""
        return (id(self.owner), self.name)

    @property
    def home(self) -> str:
        """Name of the module that the owner lives in."""
        if isinstance(self.owner, type):
            return self.owner.__module__
        if isinstance(self.owner, types.ModuleType):
            return self.owner.__name__
        parts = self.path.split(".")  # a mapping or an instance: the module that its path begins with
        names = (".".join(parts[:count]) for count in range(len(parts) - 1, 0, -1))
        return next((name for name in names if name in sys.modules), "")

    def read(self) -> object:
        """The raw descriptor that the owner itself holds now, or `ABSENT`."""
        return own_namespace(self.owner).get(self.name, ABSENT)

    def write(self, value: object) -> None:
        """Make the owner hold `value`; a value of `ABSENT` deletes the name."""
        if isinstance(self.owner, Mapping) and not isinstance(self.owner, type):
            if value is ABSENT:
                del self.owner[self.name]  # type: ignore[attr-defined]
            else:
                self.owner[self.name] = value  # type: ignore[index]
        elif value is ABSENT:
            delattr(self.owner, self.name)
        elif isinstance(self.owner, type):
            # type.__setattr__ directly: a metaclass may refuse, copy or translate what it is given.
            type.__setattr__(self.owner, self.name, value)
        else:
            setattr(self.owner, self.name, value)


def own_namespace(owner: object) -> Mapping[str, Any]:
    """What `owner` itself holds, by name; looking runs no code of the owner's."""
    if isinstance(owner, Mapping) and not isinstance(owner, type):
        return owner
    return vars(owner) if hasattr(owner, "__dict__") else {}


def resolve(path: str, scope: str | None = None) -> Site:
    """Find the site of `path`, importing the modules that it names.

    The longest importable prefix is the module; the rest are attributes, or keys where the owner is a mapping. Where
    that leads nowhere a shorter prefix is tried, since a name can be a module by import and something else by
    attribute.

    Raises
    ------
    ResolutionError
        If there is no such object, or nothing may be written there.
    Exception
        Whatever a module that exists raises while it is imported.
    """
    parts = path.split(".")
    failure: ResolutionError | None = None
    for count in range(_importable(parts[:-1]), 0, -1):
        try:
            return _walk(path, parts, count, scope)
        except ResolutionError as error:
            if error.code != "target.missing":
                raise
            failure = failure or error
    raise failure or ResolutionError(
        "target.missing", f"'{path}' cannot be resolved: there is no module '{parts[0]}' (is the package installed?)"
    )


def _importable(parts: list[str]) -> int:
    """How many leading parts name a module; the modules are imported on the way."""
    for count in range(1, len(parts) + 1):
        name = ".".join(parts[:count])
        if name in sys.modules and sys.modules[name] is not None:
            continue
        try:
            spec = importlib.util.find_spec(name)  # of what is below a module that is no package it raises
        except (ImportError, ValueError, AttributeError):
            spec = None
        if spec is None:
            return count - 1
        importlib.import_module(name)
    return len(parts)


def _walk(path: str, parts: list[str], count: int, scope: str | None) -> Site:
    owner: Any = sys.modules[".".join(parts[:count])]
    for position in range(count, len(parts) - 1):
        owner = _step(path, owner, parts[position], ".".join(parts[:position]))
    name = parts[-1]
    raw, own = _raw(owner, name)
    if raw is ABSENT:
        raise ResolutionError("target.missing", f"'{path}' does not exist: {describe(owner)} has no '{name}'")
    _check_owner(path, owner, scope)
    if not own and not isinstance(owner, types.ModuleType) and not _inherits(owner, name):
        # Held by what has it from its type, a class from its metaclass, a function would not be bound.
        cls = f"{type(owner).__module__}.{type(owner).__qualname__}"
        raise ResolutionError(
            "target.kind", f"'{path}' belongs to the type of {describe(owner)}: name it by that, '{cls}.{name}'"
        )
    kind = kind_of(owner, raw)
    if kind.refusal:
        raise ResolutionError("target.kind", f"'{path}' cannot be replaced: {kind.refusal}")
    return Site(path, owner, name, raw, own, kind.name)


def _inherits(owner: Any, name: str) -> bool:
    return isinstance(owner, type) and any(name in vars(cls) for cls in owner.__mro__)


def _step(path: str, owner: Any, name: str, reached: str) -> Any:
    raw, _ = _raw(owner, name)
    if raw is ABSENT:
        raise ResolutionError("target.missing", f"'{path}' does not exist: '{reached}' has no '{name}'")
    if isinstance(owner, type) and isinstance(raw, (staticmethod, classmethod)):
        return raw.__func__
    return raw


def _raw(owner: Any, name: str) -> tuple[Any, bool]:
    """The raw descriptor and whether it is the owner's own."""
    if isinstance(owner, type):
        for cls in owner.__mro__:
            if name in vars(cls):
                return vars(cls)[name], cls is owner
        for cls in type.mro(type(owner)):
            if name in vars(cls) and cls is not type:
                return vars(cls)[name], False
        return ABSENT, False
    if isinstance(owner, Mapping):
        return (owner[name], True) if name in owner else (ABSENT, False)
    namespace = getattr(owner, "__dict__", None)
    if namespace is None:
        return ABSENT, False
    if name in namespace:
        return namespace[name], True
    if isinstance(owner, types.ModuleType):
        # A declared target may be loaded on demand (PEP 562, lazy modules); scans never come this way.
        try:
            value = getattr(owner, name)
        except AttributeError:
            return ABSENT, False
        return vars(owner).get(name, value), name in vars(owner)
    return _raw(type(owner), name)[0], False


def _check_owner(path: str, owner: Any, scope: str | None) -> None:
    if isinstance(owner, type):
        if owner.__flags__ & (1 << 8):  # Py_TPFLAGS_IMMUTABLETYPE, which every static type has as well
            raise ResolutionError(
                "target.immutable", f"'{path}' cannot be replaced: {owner.__qualname__} is an immutable type"
            )
        home = owner.__module__
    elif isinstance(owner, types.ModuleType):
        home = owner.__name__
    elif isinstance(owner, MutableMapping):
        return
    elif isinstance(owner, Mapping):
        raise ResolutionError("target.immutable", f"'{path}' cannot be replaced: its owner is a read-only mapping")
    else:
        home = type(owner).__module__
    if home == "__mp_main__":  # what multiprocessing calls `__main__` in the children that it starts afresh
        home = "__main__"
    if scope != "global" and home.split(".")[0] != path.split(".")[0]:
        raise ResolutionError(
            "target.foreign_owner",
            f"'{path}' changes {describe(owner)} for everyone; name it by its own path, or declare scope='global'",
            owner,
        )


def describe(owner: Any) -> str:
    """`owner` in words, for messages."""
    if isinstance(owner, types.ModuleType):
        return f"module '{owner.__name__}'"
    if isinstance(owner, type):
        return f"class '{owner.__module__}.{owner.__qualname__}'"
    return f"a {type(owner).__qualname__}"
