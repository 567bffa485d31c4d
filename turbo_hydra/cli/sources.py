# SPDX-License-Identifier: Apache-2.0
"""The files behind what Hydra composed: which folder a choice came from."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hydra.conf import HydraConf
from hydra.core.global_hydra import GlobalHydra
from hydra.types import RunMode


@dataclass(frozen=True)
class Sources:
    """The config search path of a composition and what was chosen in it.

    Parameters
    ----------
    folders : tuple of Path
        In the order in which Hydra searches them.
    choices : dict
        Config group to the chosen option.
    """

    folders: tuple[Path, ...]
    choices: dict[str, str | None]

    @classmethod
    def of(cls, hydra: HydraConf) -> Sources:
        """Read them from the `hydra` node of a job."""
        folders: list[Path] = []
        for source in hydra.runtime.config_sources:
            if source.schema == "pkg":
                spec = importlib.util.find_spec(source.path)
                folders += [Path(place) for place in (spec and spec.submodule_search_locations) or ()]
            elif source.schema == "file":
                folders.append(Path(source.path))
        return cls(
            tuple(folder.absolute() for folder in folders), {str(k): v for k, v in hydra.runtime.choices.items()}
        )

    def file(self, group: str, option: str) -> Path | None:
        """The YAML file of an option; None where none is found."""
        return next((path for path in self._each(f"{group}/{option}.yaml") if path.is_file()), None)

    def chosen(self, group: str) -> Path | None:
        """The file of the chosen option of a group."""
        option = self.choices.get(group)
        return self.file(group, option) if isinstance(option, str) else None

    def beside(self, group: str, option: str, name: str) -> Path | None:
        """A file that an option names, beside it or nearer to the root of its group.

        A preset `tiny_vla/all_off` takes over the evidence of `tiny_vla`, which lies one folder higher.
        """
        folder = f"{group}/{option}".rpartition("/")[0]
        while folder:
            found = next((path for path in self._each(f"{folder}/{name}") if path.is_file()), None)
            if found or folder == group:
                return found
            folder = folder.rpartition("/")[0]
        return None

    def _each(self, name: str) -> Iterator[Path]:
        return (folder / name for folder in self.folders)


def options(group: str) -> list[str]:
    """All options of a config group that the running Hydra application can see, presets in subfolders included."""
    loader = GlobalHydra.instance().config_loader()
    found = list(loader.get_group_options(group))
    for below in loader.list_groups(group):
        if below != "recipe":
            found += [f"{below}/{option}" for option in loader.get_group_options(f"{group}/{below}")]
    return sorted(found)


def recipes(hydra: HydraConf) -> list[str]:
    """Names of the recipes that a job composed; Hydra records no choice for a group that takes a list."""
    loader = GlobalHydra.instance().config_loader()
    found = loader.compute_defaults_list(hydra.job.config_name, list(hydra.overrides.task), RunMode.RUN)
    prefix = "optimization/recipe/"
    paths = [item.config_path or "" for item in found.defaults]
    return list(dict.fromkeys(path.removeprefix(prefix) for path in paths if path.startswith(prefix)))
