# SPDX-License-Identifier: Apache-2.0
"""Run by test_isolation in a process of its own: `python isolated.py CONFIG [FOLDER...]`.

Applies each group of a config's catalogs alone, compares `vars()` of all loaded modules and classes before and after,
takes the group back and compares again; prints one JSON object. Each group has a process of its own: modules that an
import group has served stay imported.
"""

from __future__ import annotations

import contextlib
import gc
import json
import multiprocessing
import sys
import types
from collections.abc import Mapping
from typing import Any

import torch  # noqa: F401  once, for the processes of all groups

from turbo_hydra.config import OptimizationConfigCatalog, load_catalogs
from turbo_hydra.engine.apply import Engine
from turbo_hydra.engine.import_members import PreparedImport
from turbo_hydra.engine.plan import prepare
from turbo_hydra.engine.selection import Selection
from turbo_hydra.engine.targets import ResolutionError, own_namespace, resolve


def snapshot() -> dict[tuple[int, str], tuple[Any, Any]]:
    """Owner and value of each name that a loaded module or class holds; keeps both alive."""
    owners = [item for item in list(sys.modules.values()) if isinstance(item, types.ModuleType)]
    owners += [item for item in gc.get_objects() if type(item) is type or issubclass(type(item), type)]
    return {(id(owner), name): (owner, value) for owner in owners for name, value in list(own_namespace(owner).items())}


def changed(before: dict[tuple[int, str], tuple[Any, Any]], after: dict[tuple[int, str], tuple[Any, Any]]) -> set[str]:
    """Names of what differs, among the owners of `before`."""
    known = {owner for owner, _ in before}
    keys = {key for key in before.keys() | after.keys() if key[0] in known}
    differing = {key for key in keys if before.get(key, (0, None))[1] is not after.get(key, (0, None))[1]}
    return {f"{describe((before.get(key) or after[key])[0])}.{key[1]}" for key in differing}


def describe(owner: Any) -> str:
    """Dotted name of a module or class; of a mapping its type."""
    if isinstance(owner, Mapping):
        return type(owner).__name__
    return owner.__name__ if isinstance(owner, types.ModuleType) else f"{owner.__module__}.{owner.__qualname__}"


def closure(groups: dict[str, Any], id: str) -> set[str]:
    """A group and all that it depends on."""
    return {id}.union(*(closure(groups, other) for other in groups[id].depends_on))


def examine(name: str, id: str) -> dict[str, Any]:
    """What one group changed beside its declared sites, and what was left of it after undo."""
    configs = OptimizationConfigCatalog()
    config = configs.load(configs.common_path() if name == "common" else configs.model_path(name))
    registry = load_catalogs(config)
    told = config.selection()
    on = closure(registry.groups, id)
    selection = Selection(
        groups={other: other in on for other in registry.groups},
        evidence=told.evidence,
        options=told.options,
        force=tuple(on),
    )
    plan = prepare(registry, selection)
    before = snapshot()
    engine = Engine(plan, run_id="isolation", describe={})
    report = engine.apply()
    members = [member for item in plan.groups.values() for member in item.members]
    declared = {f"{describe(site.owner)}.{site.name}" for member in members for site in member.sites}
    declared |= {place for member in members for place in member.rebound}
    (entry,) = [entry for entry in report.execution if entry["group"] == id]
    wrote = changed(before, snapshot())
    # What import groups set is in force since the plan was made: undone, it differs from `before` by being gone.
    set_before = {
        member.member.target
        for member in members
        if isinstance(member, PreparedImport) and member.member.kind == "import_alias" and member.note == "set"
    }
    left = engine.undo()
    return {
        "status": entry["status"],
        "imports": registry.groups[id].is_import_group,
        "sites": len(wrote),
        "undeclared": sorted(wrote - declared),
        "after_undo": sorted(changed(before, snapshot()) ^ set_before) + left,
    }


def main(name: str) -> dict[str, Any]:
    """`examine` for each group."""
    configs = OptimizationConfigCatalog()
    config = configs.load(configs.common_path() if name == "common" else configs.model_path(name))
    groups = load_catalogs(config).groups
    alone = [group for group in groups.values() if not group.depends_on]  # others need what an import group serves
    for member in [member for group in alone for member in group.members if member.late]:
        with contextlib.suppress(ResolutionError):
            resolve(member.target)  # what is late is there already
    with multiprocessing.get_context("fork").Pool(1, maxtasksperchild=1) as pool:
        return dict(zip(groups, pool.starmap(examine, [(name, id) for id in groups], chunksize=1), strict=True))


if __name__ == "__main__":
    sys.path[:0] = sys.argv[2:]
    sys.stdout.write(json.dumps(main(sys.argv[1])) + "\n")
