# SPDX-License-Identifier: Apache-2.0
"""The catalogs that can be used here: those of this package and those that other packages name by an entry point."""

from __future__ import annotations

import importlib.metadata

from turbo_hydra.config.catalog import OptimizationConfigCatalog
from turbo_hydra.config.yaml_reader import read_yaml
from turbo_hydra.engine.errors import OptimizationConfigError

ENTRY_POINTS = "turbo_hydra.catalogs"


def all_catalogs() -> list[str]:
    """Module names: those that a config which can be found names, then those of entry points; each once."""
    configs = OptimizationConfigCatalog()
    found: list[str] = []
    for path in (configs.common_path(), *map(configs.model_path, configs.names())):
        try:
            found += [str(name) for name in read_yaml(path).data.get("catalogs") or ()]
        except OptimizationConfigError:
            continue  # somebody else's broken config is told when it is used
    found += sorted(entry.value for entry in importlib.metadata.entry_points(group=ENTRY_POINTS))
    return list(dict.fromkeys(found))
