# SPDX-License-Identifier: Apache-2.0
"""A model's targets as a run would find them: with the import groups in force that the config has on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from turbo_hydra.config.live import ImportGroups, Live, live_records
from turbo_hydra.config.model_files import ModelFiles
from turbo_hydra.config.static import Installed, Repository, SourceTree, StaticReader
from turbo_hydra.config.static.served import servings
from turbo_hydra.engine.declarations import Group

SCRIPT = "__main__"


@dataclass(frozen=True)
class Surroundings:
    """Where targets are looked for.

    Parameters
    ----------
    repo : Path
        The model's repository.
    files : ModelFiles
        Its script and import path.
    catalogs : sequence of str
        Modules that declare the groups.
    groups : sequence of Group
        The groups that are on, in the order in which they are applied.
    options : mapping
        Group id to options.
    """

    repo: Path
    files: ModelFiles
    catalogs: Sequence[str] = ()
    groups: Sequence[Group] = ()
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def reader(self, *before_installed: SourceTree) -> StaticReader:
        """Reads the repository, then what is given here, then the installed packages."""
        trees = [Repository(self.repo, self.files.roots, self.files.entry), *before_installed, Installed()]
        return StaticReader(trees, serving=servings(self.groups, self.options), repository=self.repo.absolute())

    def live(self, targets: Sequence[str]) -> Live:
        """Evidence of targets that can be imported, and the reasons for those that have none.

        Raises
        ------
        OptimizationConfigError
            If importing ends the process, or an import group cannot take effect.
        """
        ids = [group.id for group in self.groups if group.is_import_group]
        imports = ImportGroups(list(self.catalogs), ids, {id: dict(self.options.get(id, {})) for id in ids})
        return live_records(targets, self.repo, self.files.roots, imports)


def importable(targets: Sequence[str]) -> list[str]:
    """The targets outside the script, which cannot be imported without running it."""
    return [target for target in targets if not target.startswith(f"{SCRIPT}.")]
