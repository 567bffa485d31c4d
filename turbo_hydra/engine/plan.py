# SPDX-License-Identifier: Apache-2.0
"""The plan: what would be applied, in which order, and why the rest would not."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from turbo_hydra.engine import conflicts, early
from turbo_hydra.engine.checks import Check, CheckContext, CompatibilityResult
from turbo_hydra.engine.declarations import Group
from turbo_hydra.engine.environment import config_checks, read_repository, snapshot
from turbo_hydra.engine.evidence import LiveReader
from turbo_hydra.engine.import_members import PreparedImport
from turbo_hydra.engine.members import PreparedMember, Shadow
from turbo_hydra.engine.objects import load_object, replacement_hash
from turbo_hydra.engine.options import make_options
from turbo_hydra.engine.order import execution_order
from turbo_hydra.engine.prepared import PreparedExecution
from turbo_hydra.engine.registry import Registry
from turbo_hydra.engine.selection import Selection

Decision = Literal["apply", "skip", "block"]


@dataclass
class PreparedGroup:
    """A group with its decision.

    Attributes
    ----------
    decision : {"apply", "skip", "block"}
        What will be done.
    reasons : list[str]
        Codes: why it is skipped or blocked, or which failures were forced.
    """

    group: Group
    decision: Decision = "apply"
    reasons: list[str] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    members: list[PreparedMember] = field(default_factory=list)
    options: Any = None

    def skip(self, reason: str) -> None:
        """Decide to leave the group out."""
        self.decision = "skip"
        self.reasons.append(reason)

    def block(self, *reasons: str) -> None:
        """Decide that the group cannot be applied."""
        self.decision = "block"
        self.reasons += [reason for reason in reasons if reason not in self.reasons]

    @property
    def all_checks(self) -> list[Check]:
        """Checks of the group and of its members."""
        return [*self.checks, *(check for member in self.members for check in member.checks)]

    @property
    def import_members(self) -> list[PreparedImport]:
        """The members of an import group; none of another."""
        return [member for member in self.members if isinstance(member, PreparedImport)]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data."""
        about = self.group.about
        return {
            "group": self.group.id,
            "purpose": self.group.purpose,
            "catalog": self.group.catalog,
            "place": str(self.group.place),
            "about": dataclasses.asdict(about) if about else None,
            "depends_on": list(self.group.depends_on),
            "options": dataclasses.asdict(self.options) if self.options is not None else {},
            "decision": self.decision,
            "reasons": list(self.reasons),
            "members": [
                {"target": item.member.target, "kind": item.member.kind, "replacement": item.member.replacement}
                for item in self.members
            ],
        }


@dataclass
class Plan:
    """The live plan; `to_execution` gives what of it is told.

    Attributes
    ----------
    environment : dict[str, Any]
        Host, interpreter and versions.
    groups : dict[str, PreparedGroup]
        By id, in the order in which they would be applied.
    checks : list[Check]
        Checks at the level of the config; those of groups are in `groups`.
    conflicts : list[Conflict]
        Members that cannot both be applied.
    execution_order : list[str]
        Ids of the groups that will be applied.
    covered : dict[str, str]
        Groups that are left out because another group makes all of their changes, and that group. Where it comes to
        nothing, they are applied themselves.
    loaded : frozenset[str]
        Modules that were loaded before the attempt.
    """

    environment: dict[str, Any]
    selection: Selection
    groups: dict[str, PreparedGroup]
    checks: list[Check]
    conflicts: list[conflicts.Conflict] = field(default_factory=list)
    execution_order: list[str] = field(default_factory=list)
    covered: dict[str, str] = field(default_factory=dict)
    loaded: frozenset[str] = frozenset()

    def uninstall_imports(self) -> None:
        """Take the import groups back, whose effect began when the plan was made."""
        for item in self.groups.values():
            for member in item.import_members:
                member.uninstall()

    def to_execution(self) -> PreparedExecution:
        """The plan as plain data."""
        checks = [*self.checks, *(check for group in self.groups.values() for check in group.all_checks)]
        return PreparedExecution(
            environment=self.environment,
            groups=[group.to_dict() for group in self.groups.values()],
            conflicts=[conflict.to_dict() for conflict in self.conflicts],
            execution_order=list(self.execution_order),
            checks=[check.to_dict() for check in checks],
        )


ShadowFactory = Callable[[int], Shadow]


def prepare(registry: Registry, selection: Selection, shadow: ShadowFactory | None = None) -> Plan:
    """Make the plan: resolve, check and decide, without writing at any site.

    Modules of targets and replacements are imported, and wrapper factories are called.

    Parameters
    ----------
    registry : Registry
        The groups.
    selection : Selection
        What is asked for.
    shadow : callable, optional
        Makes what compares a member with its original over a number of calls; used where `selection.shadow_calls` is
        not 0.

    Raises
    ------
    OptimizationConfigError
        If an option is unknown or has the wrong type; nothing has been imported then.
    """
    loaded = frozenset(sys.modules)
    repository = read_repository(selection.repository)
    groups = {id: PreparedGroup(group) for id, group in registry.groups.items()}
    order, cyclic = execution_order(groups, {id: item.group.depends_on for id, item in groups.items()})
    groups = {id: groups[id] for id in [*order, *cyclic]}
    for id, item in groups.items():
        item.options = make_options(item.group, selection.options.get(id, {}))
    plan = Plan(snapshot(selection, repository), selection, groups, config_checks(selection, repository), loaded=loaded)
    _select(plan)
    for id in cyclic:
        if groups[id].decision == "apply":
            groups[id].block("dependency.cycle")
    config_failures = [check for check in plan.checks if check.status == "fail"]
    reader = LiveReader()
    for imports in (True, False):
        # Import groups are in force before any other target is resolved.
        for item in groups.values():
            if item.decision == "apply" and item.group.is_import_group is imports:
                _prepare_group(item, plan, reader, loaded, shadow)
                _decide(item, selection, config_failures)
        if imports:
            _install_imports(plan)
    _look_back(plan, loaded)
    _find_conflicts(plan)
    _block_dependents(groups)
    _refuse_uncompilable(plan)
    _block_dependents(groups)
    _cover(plan)
    plan.execution_order = [id for id, item in groups.items() if item.decision == "apply"]
    return plan


def _select(plan: Plan) -> None:
    selection = plan.selection
    for id, item in plan.groups.items():
        if item.group.is_observer:
            continue
        if not selection.groups.get(id, False):
            item.skip("group_disabled")
        elif selection.is_disabled(id) or (not selection.enabled and item.group.purpose == "optimization"):
            item.skip("disabled_by_user")
    for item in plan.groups.values():
        for needed in item.group.depends_on:
            other = plan.groups.get(needed)
            if item.decision == "apply" and (other is None or other.decision == "skip"):
                item.skip("dependency_disabled")


def _prepare_group(
    item: PreparedGroup, plan: Plan, reader: LiveReader, loaded: frozenset[str], shadow: ShadowFactory | None
) -> None:
    group, selection = item.group, plan.selection
    for member in group.members:
        kind = PreparedImport if group.is_import_group else PreparedMember
        prepared = kind(group, member, item.options)
        item.members.append(prepared)
        if shadow is not None and selection.shadow_calls and not member.observer and not group.is_import_group:
            prepared.shadow = shadow(selection.shadow_calls)
        prepared.prepare(selection, reader, loaded)
    if group.compatibility_check is not None:
        item.checks.append(_ask(group, item, plan))
    recorded = selection.replacements.get(group.id)
    if recorded is not None and recorded != (actual := replacement_hash(group)):
        message = "the replacement is not the one that was validated with the originals; generate the evidence anew"
        item.checks.append(
            Check("replacement.changed", "warning", group.id, None, recorded, str(actual), group.place, message=message)
        )


def _install_imports(plan: Plan) -> None:
    items = [item for item in plan.groups.values() if item.group.is_import_group and item.decision == "apply"]
    plan.conflicts += conflicts.find_between_imports([member for item in items for member in item.members])
    _block_conflicting(plan)
    for item in items:
        if item.decision != "apply":
            continue
        try:
            for member in item.import_members:
                member.install(plan.selection.repository)
        except Exception as error:
            message = f"{type(error).__name__}: {error}"
            item.checks.append(Check("import.failed", "fail", item.group.id, place=item.group.place, message=message))
            item.block("import.failed")
            for member in item.import_members:
                member.uninstall()


def _ask(group: Group, item: PreparedGroup, plan: Plan) -> Check:
    enabled = frozenset(id for id, other in plan.groups.items() if other.decision == "apply")
    context = CheckContext(group.id, item.options, enabled, plan.environment, plan.selection.repository)
    path = group.compatibility_check or ""
    try:
        result = load_object(path)(context)
    except Exception as error:
        message = f"compatibility_check '{path}' raised {type(error).__name__}: {error}"
        return Check("compatibility_check", "fail", group.id, place=group.place, message=message)
    if not isinstance(result, CompatibilityResult):
        message = f"compatibility_check '{path}' must return a CompatibilityResult, found {result!r}"
        return Check("compatibility_check", "fail", group.id, place=group.place, message=message)
    status: Literal["pass", "fail"] = "pass" if result.compatible else "fail"
    return Check("compatibility_check", status, group.id, place=group.place, message=result.reason)


def _decide(item: PreparedGroup, selection: Selection, config_failures: list[Check]) -> None:
    forced = selection.is_forced(item.group.id)
    observer = item.group.is_observer
    for check in [*([] if observer else config_failures), *item.all_checks]:
        if check.status != "fail":
            continue
        if forced and check.forceable:
            item.reasons.append(f"forced:{check.code}")
            for member in item.members:
                if member.member.target == check.target:
                    member.evidence = "forced"
        else:
            item.block(check.code)


def _refuse_uncompilable(plan: Plan) -> None:
    """Block the groups that may not run under a compiler beside one that compiles."""
    applied = [item for item in plan.groups.values() if item.decision == "apply"]
    compiling = ", ".join(f"'{item.group.id}'" for item in applied if item.group.about and item.group.about.compiles)
    for item in applied:
        if compiling and item.group.about is not None and not item.group.about.compile:
            message = (
                f"'{item.group.id}' may not run under torch.compile (its about says compile=False), which {compiling} "
                "uses; switch one off"
            )
            place = item.group.place
            item.checks.append(Check("compile.pairing", "fail", item.group.id, place=place, message=message))
            item.block("compile.pairing")


def _find_conflicts(plan: Plan) -> None:
    applied = [item for item in plan.groups.values() if item.decision == "apply"]
    members = [member for item in applied for member in item.members]
    plan.conflicts += [*conflicts.find(members), *conflicts.find_under_imports(members, _needed(plan))]
    _block_conflicting(plan)


def _cover(plan: Plan) -> None:
    applied = [item for item in plan.groups.values() if item.decision == "apply" and not item.group.is_import_group]
    plan.covered = conflicts.covered([member for item in applied for member in item.members])
    for id, other in plan.covered.items():
        plan.groups[id].skip(f"covered by {other}")


def _look_back(plan: Plan, loaded: frozenset[str]) -> None:
    """Warn of what was made from the originals before this attempt and keeps them."""
    members = [
        member
        for item in plan.groups.values()
        if item.decision == "apply"
        for member in item.members
        if member.site is not None and not member.member.observer and member.home in loaded
    ]
    own = early.own_attributes([member.site for member in members if member.site is not None])
    for member in members:
        if member.site is None:
            continue
        target = member.member.target
        names = own.get(member.site.key, [])
        frames = early.compiled_frames(member.site)
        if names:
            message = f"instances made before apply() keep a '{member.site.name}' of their own: {', '.join(names)}"
            member.warn("instances.own_attribute", message, actual=f"{len(names)} instances")
        if frames:
            message = f"'{target}' was compiled before apply(); compiled code keeps the original"
            member.warn("compiled.before", message, actual=f"{frames} compilations")


def _block_conflicting(plan: Plan) -> None:
    for conflict in plan.conflicts:
        for id in conflict.groups:
            item = plan.groups[id]
            if "conflict" in item.reasons:
                continue
            item.block("conflict")
            place = item.group.place
            item.checks.append(Check("conflict", "fail", id, conflict.targets[0], place=place, message=conflict.reason))
            for member in item.import_members:
                member.uninstall()


def _needed(plan: Plan) -> dict[str, frozenset[str]]:
    """Each group's dependencies, those of its dependencies counted in."""
    needed: dict[str, frozenset[str]] = {}
    for id, item in plan.groups.items():  # in dependency order
        direct = item.group.depends_on
        needed[id] = frozenset(direct).union(*(needed.get(other, frozenset()) for other in direct))
    return needed


def _block_dependents(groups: Mapping[str, PreparedGroup]) -> None:
    for item in groups.values():  # in dependency order, so that one pass carries a block through
        for needed in item.group.depends_on:
            if item.decision == "apply" and groups[needed].decision == "block":
                item.block("dependency_blocked")
