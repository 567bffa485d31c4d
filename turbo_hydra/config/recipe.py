# SPDX-License-Identifier: Apache-2.0
"""The recipe: the hand-written selection that an optimization config is generated from."""

from __future__ import annotations

import dataclasses
import logging
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from turbo_hydra.config.catalog import OptimizationConfigCatalog
from turbo_hydra.config.fields import Field
from turbo_hydra.config.merging import merge
from turbo_hydra.config.parts import (
    Compatibility,
    Metadata,
    check_header,
    read_catalogs,
    read_compatibility,
    read_groups,
    read_metadata,
    read_model,
    read_options,
)
from turbo_hydra.config.yaml_reader import Document, read_yaml
from turbo_hydra.engine.errors import OptimizationConfigError, OptimizationConfigNotFoundError

SCHEMA_VERSION = "turbo_hydra/recipe/v1"
KIND = "OptimizationRecipe"
KEYS = ("schema_version", "kind", "metadata", "model", "catalogs", "compatibility", "groups", "options")


log = logging.getLogger(__name__)

_NAME = re.compile(r"(?:/optimization/recipe/)?(?P<name>\w[\w-]*)(?:@_here_)?")
_SELF = "_self_"


@dataclass(frozen=True)
class Recipe:
    """A selection of groups, without evidence.

    Parameters
    ----------
    metadata : Metadata
        Id, version and description of the config to generate.
    model : str or None
        The model; None for groups that serve every script, whose config names no commit.
    catalogs : tuple of str
        Modules that declare the groups.
    compatibility : Compatibility
        Versions that are accepted; the commit is added by `generate`.
    groups : dict
        Group id to whether it is on.
    options : dict
        Group id to options.
    files : tuple of Path
        What it was read from: the recipes that it is made of, in the order in which they are merged.
    """

    metadata: Metadata = field(default_factory=Metadata)
    model: str | None = None
    catalogs: tuple[str, ...] = ()
    compatibility: Compatibility = field(default_factory=Compatibility)
    groups: Mapping[str, bool] = field(default_factory=dict)
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    files: tuple[Path, ...] = ()

    @classmethod
    def from_file(cls, path: Path) -> Recipe:
        """Read a recipe with those that its defaults list names, as Hydra composes them.

        Raises
        ------
        OptimizationConfigNotFoundError
            If a file is missing.
        OptimizationConfigError
            If its content is wrong; the message names file, line and key.
        """
        documents = list(_documents(path.absolute(), ()))
        merged: dict[str, Any] = {}
        for document in documents:
            cls.from_document(document)  # each on its own, so that a fault is told where it stands
            merged = merge(merged, document.data)
        own = documents[-1]
        files = tuple(Path(document.source) for document in documents)
        return dataclasses.replace(cls.from_document(Document(merged, str(path), own.lines)), files=files)

    @classmethod
    def from_document(cls, document: Document) -> Recipe:
        """Check the content of a recipe."""
        root = Field.root(document)
        root.mapping(KEYS)
        check_header(root, SCHEMA_VERSION, KIND)
        return cls(
            metadata=read_metadata(root["metadata"]),
            model=read_model(root["model"]),
            catalogs=read_catalogs(root["catalogs"]),
            compatibility=read_compatibility(root["compatibility"]),
            groups=read_groups(root["groups"]),
            options=read_options(root["options"]),
        )


def _documents(file: Path, children: tuple[Path, ...]) -> Iterator[Document]:
    """The recipes of a defaults list and the file itself, in the order in which they are merged."""
    document = read_yaml(file)
    key, entries = _parents(document)
    own = Document({k: v for k, v in document.data.items() if k != key}, document.source, document.lines)
    for index, entry in enumerate(entries or (_SELF,)):
        if entry == _SELF:
            yield own
            continue
        place = document.place((key, str(index)))
        found = _NAME.fullmatch(entry)
        if found is None:
            raise OptimizationConfigError(f"{place}: the list '{key}' of a recipe names recipes, found '{entry}'")
        parent = _recipe(found["name"], file)
        if parent is None:
            raise OptimizationConfigNotFoundError(f"{place}: there is no recipe '{found['name']}' beside {file}")
        if parent in (*children, file):
            raise OptimizationConfigError(f"{place}: recipe '{found['name']}' names this one in turn; break the circle")
        yield from _documents(parent, (*children, file))


def _parents(document: Document) -> tuple[str, tuple[str, ...]]:
    """The key that names other recipes, and what it lists with `_self_` in its place."""
    root = Field.root(document)
    defaults, extends = root["defaults"], root["extends"]
    if extends.value is not None:
        names = extends.strings(one_is_enough=True)
        form = f"defaults: [{', '.join((*names, _SELF))}]"
        if defaults.value is not None:
            raise OptimizationConfigError(f"{extends.place}: 'extends' and 'defaults' both name recipes; keep `{form}`")
        log.warning("%s: 'extends' is the form of older recipes; Hydra's is `%s`", extends.place, form)
        return "extends", (*names, _SELF)
    entries = defaults.strings()
    if entries and _SELF not in entries:
        raise OptimizationConfigError(
            f"{defaults.place}: a recipe's defaults list says where the recipe itself stands: add {_SELF}"
        )
    return "defaults", entries


def _recipe(name: str, child: Path) -> Path | None:
    folders = [child.parent, *(folder / "recipe" for folder in OptimizationConfigCatalog().folders)]
    return next((file for folder in folders if (file := folder / f"{name}.yaml").is_file()), None)
