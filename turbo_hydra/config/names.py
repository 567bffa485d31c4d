# SPDX-License-Identifier: Apache-2.0
"""Names in a config against the groups that its catalogs declare."""

from __future__ import annotations

from collections.abc import Mapping

from turbo_hydra.config.fields import did_you_mean
from turbo_hydra.config.schema import OptimizationConfig
from turbo_hydra.engine.declarations import Group
from turbo_hydra.engine.errors import OptimizationConfigError
from turbo_hydra.engine.plan import make_options
from turbo_hydra.engine.registry import Registry
from turbo_hydra.engine.selection import matches

_WILD = frozenset("*?[")


def load_catalogs(config: OptimizationConfig, registry: Registry | None = None) -> Registry:
    """A registry with the groups of the config's catalogs.

    Raises
    ------
    OptimizationConfigError
        If a catalog cannot be imported.
    """
    registry = registry or Registry()
    for catalog in config.catalogs:
        registry.load(catalog)
    return registry


def check_names(config: OptimizationConfig, registry: Registry) -> None:
    """Refuse groups and options that no catalog of the registry declares.

    Raises
    ------
    OptimizationConfigError
        With the key, and the name that was probably meant.
    """
    groups = registry.groups
    for id in config.groups:
        _known(id, groups, config, f"groups.{id}")
    for id, values in config.options.items():
        group = _known(id, groups, config, f"options.{id}")
        for name in values:
            if name not in group.option_names:
                what = did_you_mean(name, group.option_names) or "; the group has no options"
                raise OptimizationConfigError(f"{_source(config)}unknown option 'options.{id}.{name}'{what}")
        make_options(group, values)
    for key in ("only", "disable", "force"):
        for pattern in getattr(config, key) or ():
            if not _WILD.intersection(pattern):
                _known(pattern, groups, config, f"{key}: {pattern}")


def unmatched(config: OptimizationConfig, registry: Registry) -> tuple[str, ...]:
    """Sentences about settings that change nothing: globs that match no group, force on a group that is off."""
    ids = registry.groups
    said = []
    for key in ("only", "disable", "force"):
        for pattern in getattr(config, key) or ():
            if pattern != "*" and not any(matches(id, (pattern,)) for id in ids):
                said.append(f"'{key}: [{pattern}]' matches no group of the catalogs {', '.join(config.catalogs)}")
    said += [
        f"'force' names group '{id}', which is off; only a group that is on is forced"
        for id in config.force
        if id in ids and not config.groups.get(id, False)
    ]
    return tuple(said)


def _known(id: str, groups: Mapping[str, Group], config: OptimizationConfig, key: str) -> Group:
    if id in groups:
        return groups[id]
    what = did_you_mean(id, groups)
    if not groups:
        what = "; the config names no catalog that declares groups"
    raise OptimizationConfigError(f"{_source(config)}unknown group '{id}' ({key}){what}")


def _source(config: OptimizationConfig) -> str:
    return f"{config.path}: " if config.path else ""
