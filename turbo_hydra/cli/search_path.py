# SPDX-License-Identifier: Apache-2.0
"""Config folders of other installed packages, for turbo-train only: other Hydra applications are not touched."""

from __future__ import annotations

import importlib.metadata

from hydra.core.config_search_path import ConfigSearchPath
from hydra.plugins.search_path_plugin import SearchPathPlugin

from turbo_hydra.config.catalog import ENTRY_POINTS

OWN = "turbo_hydra.conf"


class InstalledConfigs(SearchPathPlugin):
    """Appends the packages named under the entry point `turbo_hydra.conf`; ours and the user's come first."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Append them in the order of their names."""
        for entry in sorted(importlib.metadata.entry_points(group=ENTRY_POINTS), key=lambda item: item.name):
            if entry.value != OWN:
                search_path.append(provider=entry.name, path=f"pkg://{entry.value}")
