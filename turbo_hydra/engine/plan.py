# SPDX-License-Identifier: Apache-2.0
"""The plan: what would be applied, in which order, and why the rest would not."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Literal

from turbo_hydra.engine import between, conflicts, early
from turbo_hydra.engine.checks import Check, CheckContext, CompatibilityResult
from turbo_hydra.engine.declarations import Group
from turbo_hydra.engine.environment import config_checks, read_backend, read_repository, snapshot
from turbo_hydra.engine.evidence import LiveReader
from turbo_hydra.engine.import_members import PreparedImport
from turbo_hydra.engine.members import PreparedMember, Shadow
from turbo_hydra.engine.objects import load_object, replacement_hash
from turbo_hydra.engine.options import make_options
from turbo_hydra.engine.order import execution_order
from turbo_hydra.engine.planned import Plan, PreparedGroup
from turbo_hydra.engine.registry import Registry
from turbo_hydra.engine.selection import Selection

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
    repository, backend = read_repository(selection.repository), read_backend(selection)
    groups = {id: PreparedGroup(group) for id, group in registry.groups.items()}
    order, cyclic = execution_order(groups, {id: item.group.depends_on for id, item in groups.items()})
    groups = {id: groups[id] for id in [*order, *cyclic]}
    for id, item in groups.items():
        item.options = make_options(item.group, selection.options.get(id, {}))
    environment, checks = snapshot(selection, repository, backend), config_checks(selection, repository, backend)
    plan = Plan(environment, selection, groups, checks, loaded=loaded)
    _select(plan)
    for id in cyclic:
        if groups[id].decision == "apply":
            groups[id].block("dependency.cycle")
    _make_members(plan, shadow)
    try:
        _prepare_groups(plan)
    except BaseException:
        plan.uninstall_imports()
        raise
    plan.execution_order = [item.group.id for item in plan.chosen]
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


def _make_members(plan: Plan, shadow: ShadowFactory | None) -> None:
    calls = plan.selection.shadow_calls
    for item in plan.chosen:
        group = item.group
        kind = PreparedImport if group.is_import_group else PreparedMember
        item.members += [kind(group, member, item.options) for member in group.members]
        for prepared in item.members:
            if shadow is not None and calls and not prepared.member.observer and not group.is_import_group:
                prepared.shadow = shadow(calls)


def _prepare_groups(plan: Plan) -> None:
    between.decide_under_imports(plan)  # by name: nothing has been imported yet, so that nothing was served
    reader = LiveReader()
    for imports in (True, False):
        # Import groups are in force before any other target is resolved.
        for item in plan.groups.values():
            if item.decision == "apply" and item.group.is_import_group is imports:
                _prepare_group(item, plan, reader)
                _decide(item, plan)
        if imports:
            _install_imports(plan)
    early.look_back([member for item in plan.chosen for member in item.members], plan.loaded)
    between.decide(plan)
    for item in plan.groups.values():
        if item.decision != "apply":
            item.uninstall_imports()  # in force until something between groups spoke against it


def _prepare_group(item: PreparedGroup, plan: Plan, reader: LiveReader) -> None:
    group, selection = item.group, plan.selection
    for prepared in item.members:
        prepared.prepare(selection, reader, plan.loaded)
    if group.compatibility_check is not None:
        item.checks.append(_ask(group, item, plan))
    recorded = selection.replacements.get(group.id)
    if recorded is not None and recorded != (actual := replacement_hash(group)):
        message = "the replacement is not the one that was validated with the originals; generate the evidence anew"
        item.checks.append(
            Check("replacement.changed", "warning", group.id, None, recorded, str(actual), group.place, message=message)
        )


def _ask(group: Group, item: PreparedGroup, plan: Plan) -> Check:
    enabled = frozenset(other.group.id for other in plan.chosen)
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


def _decide(item: PreparedGroup, plan: Plan) -> None:
    forced = plan.selection.is_forced(item.group.id)
    of_config = [] if item.group.is_observer else plan.checks
    for check in [*of_config, *item.all_checks]:
        if check.status != "fail":
            continue
        if forced and check.forceable:
            item.reasons.append(f"forced:{check.code}")
            for member in item.members:
                if member.member.target == check.target:
                    member.evidence = "forced"
        else:
            item.block(check.code)


def _install_imports(plan: Plan) -> None:
    items = [item for item in plan.chosen if item.group.is_import_group]
    plan.conflicts += conflicts.find_between_imports([member for item in items for member in item.members])
    between.block_conflicting(plan)
    for item in items:
        between.block_dependents(plan)  # of one that could not be installed, too
        if item.decision != "apply":
            continue
        try:
            for member in item.import_members:
                member.install(plan.selection.repository)
        except Exception as error:
            message = f"{type(error).__name__}: {error}"
            item.checks.append(Check("import.failed", "fail", item.group.id, place=item.group.place, message=message))
            item.block("import.failed")
            item.uninstall_imports()
