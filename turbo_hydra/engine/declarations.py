# SPDX-License-Identifier: Apache-2.0
"""What a catalog declares: groups and their members, as plain data.

Importing this module, and a catalog that uses it, imports no torch and no model: every object of the training
code and every replacement is named by a dotted path.
"""

from __future__ import annotations

import dataclasses
import re
import sys
from dataclasses import dataclass, field
from typing import Any, Literal

from turbo_hydra.engine.errors import DeclarationError

Kind = Literal[
    "replace", "wrap", "replace_import", "import_alias", "optional_import", "registry_override", "before_import"
]
Numerics = Literal["bitwise", "close", "changes training"]
IMPORT_KINDS: frozenset[str] = frozenset(
    {"replace_import", "import_alias", "optional_import", "registry_override", "before_import"}
)

_GROUP_ID = re.compile(r"[a-z0-9_]+\.[a-z0-9_]+")
_PATH = re.compile(r"[^\W\d]\w*(\.\w+)*")


@dataclass(frozen=True)
class Place:
    """A line of a file."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True)
class About:
    """Why a group exists and what it costs; printed by `turbo-opt list` and in the report.

    Parameters
    ----------
    why : str
        What upstream does and what the group does instead.
    purpose : {"optimization", "compatibility"}
        Whether the code would also run without the group.
    memory : str
        What it costs or saves in memory, with numbers where they were measured.
    numerics : {"bitwise", "close", "changes training"}
        The class that an ablation enforces.
    validated : str
        Devices, dtypes, shapes and versions that it was tried on.
    backward, compile : bool
        Whether gradients flow through the replacement; whether it may run under `torch.compile`. Code that the script
        itself compiles breaks its graph at a replacement that may not.
    compiles : bool
        Whether the group puts code under `torch.compile`; a group that may not run there is blocked beside it.
    until : str
        When the group can go.
    """

    why: str
    purpose: Literal["optimization", "compatibility"] = "optimization"
    memory: str = "none"
    numerics: Numerics = "close"
    validated: str = ""
    backward: bool = True
    compile: bool = True
    compiles: bool = False
    until: str = ""


@dataclass(frozen=True)
class Member:
    """One declared change at one target; made by `replace`, `wrap` and the functions for imports."""

    kind: Kind
    target: str
    replacement: str
    aliases: tuple[str, ...] = ()
    runtime_condition: str | None = None
    late: bool = False
    scope: Literal["global"] | None = None
    rebind: bool = True
    stack: bool = False
    observer: bool = False
    names: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    source: bool = False
    place: Place = field(default=Place("<unknown>", 0), compare=False)

    @property
    def paths(self) -> tuple[str, ...]:
        """The target and its aliases."""
        return (self.target, *self.aliases)


@dataclass(frozen=True)
class Group:
    """A unit that is selected, checked, applied, rolled back, measured and reported as a whole."""

    id: str
    members: tuple[Member, ...]
    depends_on: tuple[str, ...] = ()
    compatibility_check: str | None = None
    options: type[Any] | None = None
    about: About | None = None
    place: Place = field(default=Place("<unknown>", 0), compare=False)
    catalog: str = field(default="", compare=False)

    @property
    def is_import_group(self) -> bool:
        """Whether the members change imports; such groups take effect before any target is resolved."""
        return self.members[0].kind in IMPORT_KINDS

    @property
    def is_observer(self) -> bool:
        """Whether the group only watches; it is not selected, not in conflict and not counted."""
        return all(member.observer for member in self.members)

    @property
    def purpose(self) -> str:
        """`optimization` unless `about` says otherwise."""
        return self.about.purpose if self.about else "optimization"

    @property
    def option_names(self) -> tuple[str, ...]:
        """Names of the options, in order of declaration."""
        return tuple(item.name for item in dataclasses.fields(self.options)) if self.options else ()


def caller() -> tuple[Place, str]:
    """Place and module name of the nearest frame outside the modules that declare.

    Returns
    -------
    tuple[Place, str]
        File and line of the call, and the `__name__` of the module that made it.
    """
    frame = sys._getframe(1)
    ours = (__name__, "turbo_hydra.engine.registry", "turbo_hydra.compatibility", "turbo_hydra.api")
    while frame.f_back is not None and frame.f_globals.get("__name__") in ours:
        frame = frame.f_back
    return Place(frame.f_code.co_filename, frame.f_lineno), str(frame.f_globals.get("__name__", "<unknown>"))


def is_path(path: object) -> bool:
    """Whether `path` is a string of names joined by dots."""
    return isinstance(path, str) and _PATH.fullmatch(path) is not None


def check_path(what: str, path: object, place: Place) -> None:
    """Refuse what is not a dotted path.

    Raises
    ------
    DeclarationError
        If `path` is not a string of names joined by dots.
    """
    if not is_path(path) or "." not in str(path):
        raise DeclarationError(f"{place}: {what} must be a dotted path such as 'package.module.name', found {path!r}")


def _paths(what: str, value: object, place: Place) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, (tuple, list)):
        raise DeclarationError(f"{place}: {what} must be a tuple of strings, found {value!r}; write ({value!r},)")
    return tuple(value)


def _object_member(
    kind: Literal["replace", "wrap"], target: str, replacement: str, aliases: tuple[str, ...], **settings: Any
) -> Member:
    place, _ = caller()
    check_path("target", target, place)
    check_path(f"the replacement of '{target}'", replacement, place)
    aliases = _paths(f"aliases of '{target}'", aliases, place)
    for alias in aliases:
        check_path(f"an alias of '{target}'", alias, place)
    if target in aliases or len(set(aliases)) != len(aliases):
        raise DeclarationError(
            f"{place}: the aliases of '{target}' repeat a path: {list(aliases)}; name each path once"
        )
    if settings["scope"] not in (None, "global"):
        raise DeclarationError(f"{place}: scope of '{target}' must be None or 'global', found {settings['scope']!r}")
    if settings["runtime_condition"] is not None:
        check_path(f"the runtime_condition of '{target}'", settings["runtime_condition"], place)
    return Member(kind, target, replacement, aliases, place=place, **settings)


def replace(
    target: str,
    replacement: str,
    aliases: tuple[str, ...] = (),
    runtime_condition: str | None = None,
    *,
    late: bool = False,
    scope: Literal["global"] | None = None,
    rebind: bool = True,
) -> Member:
    """Declare that the object at `target` gives way to the object at `replacement`.

    Parameters
    ----------
    target, replacement : str
        Dotted paths.
    aliases : tuple[str, ...]
        Other paths that hold the same object.
    runtime_condition : str, optional
        Path of a function `(*args, **kwargs) -> bool` that chooses replacement or original for each call.
    late : bool
        The name comes into being later (in the script itself, or in a module that the script imports).
    scope : "global", optional
        Allows a target whose owner belongs to another package than the path names.
    rebind : bool
        Whether module globals elsewhere that hold the original are rebound too.

    Raises
    ------
    DeclarationError
        If a path is malformed or given twice.
    """
    return _object_member(
        "replace",
        target,
        replacement,
        aliases,
        runtime_condition=runtime_condition,
        late=late,
        scope=scope,
        rebind=rebind,
    )


def wrap(
    target: str,
    factory: str,
    aliases: tuple[str, ...] = (),
    runtime_condition: str | None = None,
    *,
    late: bool = False,
    scope: Literal["global"] | None = None,
    rebind: bool = True,
    stack: bool = False,
    observer: bool = False,
) -> Member:
    """Declare that `factory(original, options)` takes the place of the object at `target`.

    `options` is an instance of the group's options dataclass, or None. `stack` lets several wraps of one site that
    all say so lie on one another in declared order; `observer` marks a wrap that changes nothing of the result and is
    put on last. The other parameters are those of `replace`.

    Raises
    ------
    DeclarationError
        If a path is malformed or given twice.
    """
    return _object_member(
        "wrap",
        target,
        factory,
        aliases,
        runtime_condition=runtime_condition,
        late=late,
        scope=scope,
        rebind=rebind,
        stack=stack,
        observer=observer,
    )


def declare(
    id: str,
    *members: Member,
    depends_on: tuple[str, ...] = (),
    compatibility_check: str | None = None,
    options: type[Any] | None = None,
    about: About | None = None,
) -> Group:
    """Make a `Group` without registering it; `turbo_hydra.group` registers too.

    Raises
    ------
    DeclarationError
        If the id, a member, a dependency or the options cannot be meant.
    """
    place, catalog = caller()
    if not isinstance(id, str) or not _GROUP_ID.fullmatch(id):
        raise DeclarationError(f"{place}: a group id is 'catalog.group' of [a-z0-9_]+ each, found {id!r}")
    if not members or not all(isinstance(member, Member) for member in members):
        raise DeclarationError(f"{place}: group '{id}' needs members made by replace(), wrap() and their like")
    depends_on = _paths(f"depends_on of group '{id}'", depends_on, place)
    if id in depends_on:
        raise DeclarationError(f"{place}: group '{id}' depends on itself")
    kinds = {member.kind in IMPORT_KINDS for member in members}
    if len(kinds) > 1:
        raise DeclarationError(f"{place}: group '{id}' mixes import kinds with replace or wrap; make two groups of it")
    seen: set[str] = set()
    for member in members:
        for path in member.paths:
            if path in seen:
                raise DeclarationError(f"{member.place}: group '{id}' declares '{path}' twice")
            seen.add(path)
    if options is not None:
        _check_options(id, options, place)
        if compatibility_check is None and all(member.kind == "replace" for member in members):
            raise DeclarationError(
                f"{place}: the options of group '{id}' reach nothing, since replace() takes none; use wrap()"
            )
    if compatibility_check is not None:
        check_path(f"compatibility_check of group '{id}'", compatibility_check, place)
    return Group(id, members, depends_on, compatibility_check, options, about, place, catalog)


def _check_options(id: str, options: type[Any], place: Place) -> None:
    if not (isinstance(options, type) and dataclasses.is_dataclass(options)):
        raise DeclarationError(f"{place}: options of group '{id}' must be a dataclass, found {options!r}")
    for item in dataclasses.fields(options):
        if item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING:
            raise DeclarationError(f"{place}: option '{item.name}' of group '{id}' has no default; give it one")
