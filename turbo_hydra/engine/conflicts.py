# SPDX-License-Identifier: Apache-2.0
"""Members that cannot both be applied."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from turbo_hydra.engine.covering import covered, identical
from turbo_hydra.engine.kinds import function_of
from turbo_hydra.engine.members import PreparedMember
from turbo_hydra.engine.targets import Site


@dataclass(frozen=True)
class Conflict:
    """Two members that want one site, or a class and something inside it.

    Parameters
    ----------
    groups : tuple[str, ...]
        The groups that are blocked by it.
    targets : tuple[str, ...]
        The paths as they were declared.
    reason : str
        One sentence.
    """

    groups: tuple[str, ...]
    targets: tuple[str, ...]
    reason: str

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data."""
        return {"groups": list(self.groups), "targets": list(self.targets), "reason": self.reason}


def find(members: Sequence[PreparedMember]) -> list[Conflict]:
    """All conflicts among `members`; identical declarations, covered groups, stacking wraps and observers are none."""
    covering = covered(members)
    found: list[Conflict] = []
    by_site: dict[tuple[int, str], list[PreparedMember]] = {}
    classes: dict[int, PreparedMember] = {}
    for prepared in members:  # those of import groups have no site
        if prepared.member.observer:
            continue
        for key in _keys(prepared):
            by_site.setdefault(key, []).append(prepared)
        if prepared.site is not None and isinstance(prepared.site.raw, type):
            classes[id(prepared.site.raw)] = prepared
    seen: set[tuple[int, int]] = set()
    for rivals in by_site.values():
        for index, first in enumerate(rivals):
            for second in rivals[index + 1 :]:
                pair = (id(first), id(second))
                one = covering.get(first.group.id, first.group.id) == covering.get(second.group.id, second.group.id)
                if pair not in seen and not _compatible(first, second, one_covers=one):
                    seen.add(pair)
                    found.append(_conflict(first, second, "both change one object"))
    for prepared in members:
        if prepared.site is None or prepared.member.observer:
            continue
        for cls in _classes_around(prepared.site.owner):
            outer = classes.get(id(cls))
            if outer is not None and outer is not prepared:
                found.append(_conflict(outer, prepared, "the first replaces the class that the second changes"))
    return found


def _classes_around(owner: Any) -> list[type]:
    """The class `owner` and the classes that it is defined in; none for another owner."""
    if not isinstance(owner, type):
        return []
    around = [owner]
    scope: Mapping[str, Any] = vars(sys.modules.get(owner.__module__, object))
    for name in owner.__qualname__.split(".")[:-1]:
        outer = scope.get(name)
        if not isinstance(outer, type):
            break
        around.append(outer)
        scope = vars(outer)
    return around


def find_between_imports(members: Sequence[PreparedMember]) -> list[Conflict]:
    """Import members that serve the same module in different ways."""
    found: list[Conflict] = []
    first: dict[str, PreparedMember] = {}
    for prepared in members:
        if prepared.member.kind == "before_import":
            continue
        other = first.setdefault(prepared.member.target, prepared)
        if other is not prepared and not identical(other, prepared):
            found.append(_conflict(other, prepared, "both say what an import gives"))
    return found


def find_under_imports(members: Sequence[PreparedMember], needed: Mapping[str, frozenset[str]]) -> list[Conflict]:
    """Members whose target lies under a module that another group serves, without depending on that group.

    Parameters
    ----------
    members : sequence of PreparedMember
        Members of all kinds; they need not have been resolved.
    needed : mapping
        Group id to all groups that it depends on.
    """
    serving = [item for item in members if item.member.kind in ("replace_import", "optional_import", "import_alias")]
    found = []
    for prepared in members:
        if prepared.member.observer or prepared.group.is_import_group:
            continue
        for server in serving:
            under = any(f"{path}.".startswith(f"{server.member.target}.") for path in prepared.member.paths)
            if under and server.group.id not in needed[prepared.group.id]:
                reason = "the second changes what the first serves; let it depend on the first"
                found.append(_conflict(server, prepared, reason))
    return found


def _compatible(first: PreparedMember, second: PreparedMember, *, one_covers: bool) -> bool:
    if first.group.id != second.group.id and one_covers:
        return True
    return (first.member.stack and second.member.stack) or identical(first, second)


def _conflict(first: PreparedMember, second: PreparedMember, reason: str) -> Conflict:
    groups = tuple(dict.fromkeys((first.group.id, second.group.id)))
    return Conflict(
        groups,
        (first.member.target, second.member.target),
        f"{first.label} ({first.member.place}) and {second.label} ({second.member.place}): {reason}; switch one off",
    )


def _keys(prepared: PreparedMember) -> set[tuple[int, str]]:
    keys = {site.key for site in prepared.sites}
    if prepared.site is not None:
        home = _home_key(prepared.site)
        if home is not None:
            keys.add(home)
    return keys


def _home_key(site: Site) -> tuple[int, str] | None:
    """Key of the place that defines the object, where that can be seen without importing anything."""
    value = function_of(site.raw)
    module, qualname = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(qualname, str):
        return None
    owner: Any = sys.modules.get(module)  # what a function made has no such place: nothing holds "<locals>"
    *parents, name = qualname.split(".")
    for parent in parents:
        owner = vars(owner).get(parent) if hasattr(owner, "__dict__") else None
    if not hasattr(owner, "__dict__") or function_of(vars(owner).get(name)) is not value:
        return None
    return (id(owner), name)
