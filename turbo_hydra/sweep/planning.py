# SPDX-License-Identifier: Apache-2.0
"""From a composed job to the groups that its rows switch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from turbo_hydra.config import OptimizationConfig, load_catalogs
from turbo_hydra.config.fields import did_you_mean
from turbo_hydra.engine.declarations import Group
from turbo_hydra.engine.registry import Registry
from turbo_hydra.engine.selection import Selection, matches
from turbo_hydra.launch.job import Job
from turbo_hydra.sweep.rows import Toggle
from turbo_hydra.sweep.settings import AblationError, AblationSettings


def config_of(job: Job) -> tuple[OptimizationConfig, Registry]:
    """The job's optimization config and the groups of its catalogs."""
    source = None if job.optimization_config_path is None else Path(job.optimization_config_path)
    config = OptimizationConfig.from_mapping(job.optimization, source)
    return config, load_catalogs(config)


def toggles(config: OptimizationConfig, registry: Registry, settings: AblationSettings) -> tuple[Toggle, ...]:
    """The groups that rows switch: optimizations that are on, or those that `ablation.groups` or `ablation.rows` name.

    Raises
    ------
    AblationError
        If a name is unknown, or names what cannot be switched.
    """
    if not config.enabled:
        raise AblationError("optimization.enabled=false switches every group off: there is nothing to leave out")
    groups = {id: group for id, group in registry.groups.items() if group.purpose == "optimization"}
    switch = Selection(
        groups={}, only=None if config.only is None else tuple(config.only), disable=tuple(config.disable)
    )
    chosen = [id for id in _named(config, registry, groups, settings) if not switch.is_disabled(id)]
    on = {id for id, state in config.groups.items() if state}
    needs = {id: _needed(id, registry.groups) for id in chosen}
    for id in chosen:
        missing = [other for other in needs[id] if other not in on and other not in chosen]
        if missing:
            raise AblationError(f"'{id}' needs '{missing[0]}', which is off; name both in ablation.groups, or neither")
    return tuple(
        Toggle(
            id,
            tuple(other for other in needs[id] if other in chosen),
            groups[id].about.numerics if groups[id].about else "close",  # type: ignore[union-attr]
            groups[id].about.memory if groups[id].about else "none",  # type: ignore[union-attr]
        )
        for id in chosen
    )


def _named(
    config: OptimizationConfig, registry: Registry, groups: Mapping[str, Group], settings: AblationSettings
) -> list[str]:
    patterns: Sequence[str] | None = settings.groups
    if patterns is None and settings.rows:
        patterns = [id for row in settings.rows for id in row]
    if patterns is None:
        return [id for id in groups if config.groups.get(id, False)]
    found: dict[str, None] = {}
    for pattern in patterns:
        ids = [id for id in groups if matches(id, (pattern,))]
        if not ids and pattern in registry.groups:
            raise AblationError(f"'{pattern}' is no optimization but needed for compatibility: rows never switch it")
        if not ids:
            raise AblationError(f"no group is called '{pattern}'{did_you_mean(pattern, groups)}")
        found.update(dict.fromkeys(ids))
    return list(found)


def _needed(id: str, groups: Mapping[str, Group]) -> list[str]:
    """All that a group depends on, directly or not."""
    found: dict[str, None] = {}
    waiting = [id]
    while waiting:
        for other in groups[waiting.pop()].depends_on:
            if other not in found and other in groups:
                found[other] = None
                waiting.append(other)
    return list(found)
