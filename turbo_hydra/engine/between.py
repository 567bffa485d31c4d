# SPDX-License-Identifier: Apache-2.0
"""What is decided about a group because of another one: conflicts, compilers, dependencies, changes in common."""

from __future__ import annotations

from turbo_hydra.engine import conflicts, covering
from turbo_hydra.engine.checks import Check
from turbo_hydra.engine.planned import Plan


def decide(plan: Plan) -> None:
    """Block and skip groups that would be applied if they were alone, once each has been decided by itself."""
    _find_conflicts(plan)
    block_dependents(plan)
    _refuse_uncompilable(plan)
    block_dependents(plan)
    _cover(plan)


def decide_under_imports(plan: Plan) -> None:
    """Block groups that would change what an import group serves without depending on it, and that import group.

    An import group that depends on a group of another kind is blocked too: it would be in force before that one.
    """
    members = [member for item in plan.chosen for member in item.members]
    plan.conflicts += conflicts.find_under_imports(members, _needed(plan))
    block_conflicting(plan)
    for item in plan.chosen:
        id, place = item.group.id, item.group.place
        later = [other for other in item.group.depends_on if not plan.groups[other].group.is_import_group]
        if item.group.is_import_group and later:
            message = f"'{id}' changes imports before '{later[0]}' is applied; it cannot depend on it"
            item.checks.append(Check("dependency.order", "fail", id, place=place, message=message))
            item.block("dependency.order")


def _find_conflicts(plan: Plan) -> None:
    plan.conflicts += conflicts.find([member for item in plan.chosen for member in item.members])
    block_conflicting(plan)


def block_conflicting(plan: Plan) -> None:
    """Block the groups of the conflicts that were found; those of import groups are found before any is in force."""
    for conflict in plan.conflicts:
        for id in conflict.groups:
            item = plan.groups[id]
            if "conflict" in item.reasons:
                continue
            item.block("conflict")
            place = item.group.place
            item.checks.append(Check("conflict", "fail", id, conflict.targets[0], place=place, message=conflict.reason))


def _needed(plan: Plan) -> dict[str, frozenset[str]]:
    """Each group's dependencies, those of its dependencies counted in."""
    needed: dict[str, frozenset[str]] = {}
    for id, item in plan.groups.items():  # in dependency order
        direct = item.group.depends_on
        needed[id] = frozenset(direct).union(*(needed.get(other, frozenset()) for other in direct))
    return needed


def block_dependents(plan: Plan) -> None:
    """Block the groups that depend on one that is blocked."""
    for item in plan.groups.values():  # in dependency order, so that one pass carries a block through
        for needed in item.group.depends_on:
            if item.decision == "apply" and plan.groups[needed].decision == "block":
                item.block("dependency_blocked")


def _refuse_uncompilable(plan: Plan) -> None:
    """Block the groups that may not run under a compiler beside one that compiles."""
    chosen = plan.chosen
    compiling = ", ".join(f"'{item.group.id}'" for item in chosen if item.group.about and item.group.about.compiles)
    for item in chosen:
        if compiling and item.group.about is not None and not item.group.about.compile:
            message = (
                f"'{item.group.id}' may not run under torch.compile (its about says compile=False), which {compiling} "
                "uses; switch one off"
            )
            place = item.group.place
            item.checks.append(Check("compile.pairing", "fail", item.group.id, place=place, message=message))
            item.block("compile.pairing")


def _cover(plan: Plan) -> None:
    members = [member for item in plan.chosen if not item.group.is_import_group for member in item.members]
    plan.covered = covering.covered(members)
    for id, other in plan.covered.items():
        plan.groups[id].skip(f"covered by {other}")
