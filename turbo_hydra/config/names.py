# SPDX-License-Identifier: Apache-2.0
"""Names in a config against the groups that its catalogs declare."""

from __future__ import annotations

import contextlib
import difflib
import sys
from collections.abc import Iterable, Mapping

from turbo_hydra.config.fields import did_you_mean
from turbo_hydra.config.schema import OptimizationConfig
from turbo_hydra.engine.declarations import Group
from turbo_hydra.engine.errors import OptimizationConfigError
from turbo_hydra.engine.options import make_options
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
    return load(config.catalogs, registry)


def load(catalogs: Iterable[str], registry: Registry | None = None) -> Registry:
    """A registry with the groups of these catalogs; what they print goes to stderr, away from what a machine reads.

    Raises
    ------
    OptimizationConfigError
        If a catalog cannot be imported.
    """
    registry = registry or Registry()
    with contextlib.redirect_stdout(sys.stderr):
        for catalog in catalogs:
            registry.load(catalog)
    return registry


def check_names(config: OptimizationConfig, registry: Registry, source: str | None = None) -> None:
    """Refuse groups and options that no catalog of the registry declares, and options of a wrong type.

    Parameters
    ----------
    config : OptimizationConfig
        What names them.
    registry : Registry
        Has the groups of the config's catalogs.
    source : str, optional
        What messages begin with; the config's file when not given.

    Raises
    ------
    OptimizationConfigError
        With the key, and the name that was probably meant.
    """
    groups = registry.groups
    start = f"{config.path}: " if source is None and config.path else f"{source}: " if source else ""
    for id in config.groups:
        _known(id, groups, f"{start}unknown group '{id}' in 'groups'")
    for id, values in config.options.items():
        group = _known(id, groups, f"{start}unknown group '{id}' in 'options'")
        for name in values:
            if name not in group.option_names:
                what = did_you_mean(name, group.option_names) or "; the group has no options"
                raise OptimizationConfigError(f"{start}unknown option 'options.{id}.{name}'{what}")
        make_options(group, values)
    for key in ("only", "disable", "force"):
        for pattern in getattr(config, key) or ():
            if not _WILD.intersection(pattern):
                _known(pattern, groups, f"{start}unknown group '{pattern}' in '{key}'")


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


def _known(id: str, groups: Mapping[str, Group], message: str) -> Group:
    if id in groups:
        return groups[id]
    if not groups:
        raise OptimizationConfigError(f"{message}: the config names no catalog that declares groups")
    # The catalog's name is most of many ids: were it compared too, any group of the catalog would look close.
    catalog, _, name = id.partition(".")
    parts = {known.partition(".")[2]: known for known in groups if known.partition(".")[0] == catalog}
    close = difflib.get_close_matches(name, parts, n=1, cutoff=0.6)
    if close:
        raise OptimizationConfigError(f"{message}; did you mean '{parts[close[0]]}'?")
    raise OptimizationConfigError(f"{message}{did_you_mean(id, parts.values() if parts else groups, cutoff=0.85)}")
