# SPDX-License-Identifier: Apache-2.0
"""Whether a selection of groups fits together: dependencies, order, conflicts; found without importing a target."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from turbo_hydra.config.fields import did_you_mean
from turbo_hydra.config.static.reader import StaticReader
from turbo_hydra.config.static.things import Defined
from turbo_hydra.config.static.uses import uses
from turbo_hydra.engine.declarations import Group, Member
from turbo_hydra.engine.errors import OptimizationConfigError
from turbo_hydra.engine.order import execution_order
from turbo_hydra.engine.registry import Registry

OBJECT_KINDS = frozenset({"replace", "wrap"})
SERVING_KINDS = frozenset({"replace_import", "optional_import", "import_alias"})


def object_targets(groups: Iterable[Group]) -> list[str]:
    """The targets that have evidence, each once: those of replace and wrap; import kinds have none."""
    return list(
        dict.fromkeys(member.target for group in groups for member in group.members if member.kind in OBJECT_KINDS)
    )


def closure(groups: Mapping[str, bool], registry: Registry) -> dict[str, bool]:
    """The selection with all that its groups depend on, in the order in which they are applied.

    Raises
    ------
    OptimizationConfigError
        If a dependency is switched off, unknown, or part of a circle.
    """
    chosen = dict(groups)
    waiting = [id for id, on in groups.items() if on]
    while waiting:
        id = waiting.pop(0)
        group = registry.groups[id]
        for needed in group.depends_on:
            if registry.get(needed) is None:
                raise OptimizationConfigError(
                    f"{group.place}: group '{id}' depends on '{needed}', which no catalog of the recipe declares"
                    f"{did_you_mean(needed, registry.groups)}"
                )
            if chosen.get(needed) is False:
                raise OptimizationConfigError(
                    f"{group.place}: group '{id}' is on and depends on '{needed}', which is off; switch both on or off"
                )
            if needed not in chosen:
                chosen[needed] = True
                waiting.append(needed)
    depends_on = {id: registry.groups[id].depends_on for id in chosen}
    declared = [id for id in registry.groups if id in chosen]
    order, circle = execution_order(declared, depends_on)
    if circle:
        raise OptimizationConfigError(f"these groups depend on one another in a circle: {', '.join(circle)}")
    return {id: chosen[id] for id in order}


def conflicts(groups: Iterable[Group], reader: StaticReader, *, one_recipe: bool) -> list[str]:
    """Sentences about members that cannot both be applied, each with both places.

    Parameters
    ----------
    groups : iterable of Group
        The groups that are on.
    reader : StaticReader
        Finds what paths lead to.
    one_recipe : bool
        Whether two groups may not declare the same change. Where configs are composed they may: a run applies one.
    """
    said: list[str] = []
    places: dict[str, tuple[Group, Member]] = {}
    classes: dict[str, tuple[Group, Member]] = {}
    groups = list(groups)
    ordered = [(group, member) for group in groups for member in group.members if not member.observer]
    for group, member in ordered:
        if member.kind == "before_import":
            continue  # takes no place of anything
        for path in member.paths:
            # What an import gives and what is changed of it are two things; the second must depend on the first.
            key, is_class = site_key(path, reader) if member.kind in OBJECT_KINDS else (f"import {path}", False)
            other = places.setdefault(key, (group, member))
            if other[1] is not member and not (other[1].stack and member.stack):
                same = (other[1].kind, other[1].replacement) == (member.kind, member.replacement)
                if same and not one_recipe and other[0] is not group and other[0].options is group.options:
                    continue
                how = "the same change; keep one of the two" if same else "different changes; keep one of the two"
                said.append(_sentence(other, (group, member), f"both declare '{path}', {how}"))
            if is_class:
                classes[key] = group, member
    for group, member in ordered:
        key, _ = site_key(member.target, reader) if member.kind in OBJECT_KINDS else ("", False)
        for outer in (classes.get(path) for path in _above(key)):
            if outer is not None and outer[1] is not member:
                said.append(_sentence(outer, (group, member), "the first replaces the class that the second changes"))
    said += _under_imports(groups)
    return list(dict.fromkeys(said))


def _above(path: str) -> Iterator[str]:
    while path := path.rpartition(".")[0]:
        yield path


def _under_imports(groups: Sequence[Group]) -> Iterator[str]:
    """Sentences about members whose target another group serves, without depending on that group."""
    needed: dict[str, set[str]] = {}
    for group in groups:  # in dependency order
        needed[group.id] = set(group.depends_on).union(*(needed.get(id, ()) for id in group.depends_on))
    serving = [(group, member) for group in groups for member in group.members if member.kind in SERVING_KINDS]
    for group in groups:
        for member in group.members if not group.is_import_group else ():
            for other in serving:
                under = any(f"{path}.".startswith(f"{other[1].target}.") for path in member.paths)
                if under and other[0] is not group and other[0].id not in needed[group.id]:
                    what = "the second changes what the first serves; let it depend on the first"
                    yield _sentence(other, (group, member), what)


def reaches(groups: Sequence[Group], reader: StaticReader) -> list[str]:
    """Sentences about replacements that use another group's replacement, which would stay in force when that is off.

    What is meant is the other group's target: whoever calls it gets the replacement while its group is on.
    """
    owners: dict[str, tuple[Group, Member]] = {}
    for group in groups:
        for member in group.members:
            if member.kind != "import_alias":  # its object is there without the group, for everyone to use
                owners.setdefault(member.replacement, (group, member))
    said = []
    for group in groups:
        own = {member.replacement for member in group.members}
        for path in sorted(own):
            thing = reader.names.resolve(path)
            for file, line, used in uses(thing, reader) if isinstance(thing, Defined) else ():
                other = owners.get(used)
                if other is not None and used not in own:
                    said.append(
                        f"{file}:{line}: the replacement of group '{group.id}' uses '{used}', that of "
                        f"group '{other[0].id}'; call its target '{other[1].target}'"
                    )
    return list(dict.fromkeys(said))


def site_key(path: str, reader: StaticReader) -> tuple[str, bool]:
    """One key for all paths that lead to one definition, and whether it is a class."""
    thing = reader.names.resolve(path)
    if isinstance(thing, Defined):
        return f"{thing.module.name}:{thing.qualname}".replace(":", "."), type(thing.node).__name__ == "ClassDef"
    return path, False


def _sentence(first: tuple[Group, Member], second: tuple[Group, Member], what: str) -> str:
    return (
        f"group '{first[0].id}' ({first[1].place}) and group '{second[0].id}' ({second[1].place}): {what}"
        if first[0] is not second[0]
        else f"group '{first[0].id}' ({first[1].place} and {second[1].place}): {what}"
    )
