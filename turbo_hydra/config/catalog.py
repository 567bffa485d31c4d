# SPDX-License-Identifier: Apache-2.0
"""Where optimization configs lie, and how one extends others."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any

from turbo_hydra.config.fields import Field, did_you_mean
from turbo_hydra.config.merging import merge
from turbo_hydra.config.parts import check_header
from turbo_hydra.config.schema import KIND, SCHEMA_VERSION, OptimizationConfig
from turbo_hydra.config.yaml_reader import Document, read_yaml
from turbo_hydra.engine.errors import OptimizationConfigError, OptimizationConfigNotFoundError

ENTRY_POINTS = "turbo_hydra.conf"
COMMON = "common"


class OptimizationConfigCatalog:
    """Finds the optimization config of a model, and resolves what a config extends.

    Parameters
    ----------
    folders : iterable of Path
        Folders with files `<model>.yaml`, searched before those of this package and before those that installed
        packages name under the entry point `turbo_hydra.conf`.

    Examples
    --------
    >>> OptimizationConfigCatalog().model_path("Tiny-VLA").name
    'tiny_vla.yaml'
    """

    def __init__(self, folders: Iterable[str | Path] = ()) -> None:
        self._first = tuple(Path(folder).absolute() for folder in folders)

    @cached_property
    def folders(self) -> tuple[Path, ...]:
        """All folders in the order in which they are searched."""
        own = Path(__file__).absolute().parent.parent / "conf" / "optimization"
        return tuple(dict.fromkeys((*self._first, own, *_installed())))

    def names(self) -> tuple[str, ...]:
        """Names of the models that have a config, sorted."""
        found = {file.stem for folder in self.folders for file in folder.glob("*.yaml")}
        return tuple(sorted(found - {COMMON}))

    def model_path(self, name: str) -> Path:
        """The config of a model; its name is read without case, and `-` as `_`.

        Raises
        ------
        OptimizationConfigNotFoundError
            If no folder has it.
        """
        wanted = name.lower().replace("-", "_")
        if wanted in self.names():
            return self._find(wanted)
        raise OptimizationConfigNotFoundError(
            f"there is no optimization config for model '{name}'{did_you_mean(wanted, self.names())}"
        )

    def common_path(self) -> Path:
        """The config that serves every script: what is taken when nothing else is said."""
        return self._find(COMMON)

    def load(self, path: str | Path) -> OptimizationConfig:
        """Read a config with all that it extends.

        Parents come first, in the order of the list, then the file itself: groups, options and dependencies are
        merged key by key, catalogs and evidence add up, everything else is what the last file that has the key says.

        Raises
        ------
        OptimizationConfigNotFoundError
            If the file or one that it extends is missing or unreadable.
        OptimizationConfigError
            If a file is wrong, or extends itself.
        """
        file = Path(path).absolute()
        documents = list(self._documents(file, ()))
        merged: dict[str, Any] = {}
        for source, document in documents:
            # Each file is checked on its own, so that a fault is told with the line where it stands.
            config = OptimizationConfig.from_document(document, source)
            data = {**document.data, "evidence": [str(item) for item in config.evidence]}
            merged = merge(merged, data)
        own = documents[-1][1]
        return OptimizationConfig.from_document(Document(merged, own.source, own.lines), file)

    def _documents(self, file: Path, children: tuple[Path, ...]) -> Iterable[tuple[Path, Document]]:
        document = read_yaml(file)
        root = Field.root(document)
        check_header(root, SCHEMA_VERSION, KIND)
        for name in root["extends"].strings(one_is_enough=True):
            parent = self._extended(name, file)
            if parent in (*children, file):
                raise OptimizationConfigError(
                    f"{root['extends'].place}: '{name}' extends this file in turn; break the circle"
                )
            if not parent.is_file():
                known = ", ".join((COMMON, *self.names()))
                raise OptimizationConfigNotFoundError(
                    f"{root['extends'].place}: '{name}' is neither the file {parent} nor one of: {known}"
                )
            yield from self._documents(parent, (*children, file))
        yield (
            file,
            Document({k: v for k, v in document.data.items() if k != "extends"}, document.source, document.lines),
        )

    def _extended(self, name: str, child: Path) -> Path:
        if name.endswith((".yaml", ".yml")) or "/" in name:
            return (child.parent / name).absolute()
        wanted = name.lower().replace("-", "_")
        if wanted in (COMMON, *self.names()):
            return self._find(wanted)
        return child.parent / f"{name}.yaml"

    def _find(self, stem: str) -> Path:
        for folder in self.folders:
            file = folder / f"{stem}.yaml"
            if file.is_file():
                return file
        raise OptimizationConfigNotFoundError(
            f"the optimization config '{stem}.yaml' is in none of {', '.join(map(str, self.folders))}"
        )


def _installed() -> tuple[Path, ...]:
    folders = []
    for entry in importlib.metadata.entry_points(group=ENTRY_POINTS):
        try:
            spec = importlib.util.find_spec(entry.value)
        except Exception:
            continue  # a broken package of somebody else is no reason to lose our own configs
        folders += [
            Path(place).absolute() / "optimization" for place in (spec and spec.submodule_search_locations) or ()
        ]
    return tuple(folders)
