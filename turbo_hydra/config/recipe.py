# SPDX-License-Identifier: Apache-2.0
"""The recipe: the hand-written selection that an optimization config is generated from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from turbo_hydra.config.fields import Field
from turbo_hydra.config.schema import (
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

SCHEMA_VERSION = "turbo_hydra/recipe/v1"
KIND = "OptimizationRecipe"
KEYS = ("schema_version", "kind", "metadata", "model", "catalogs", "compatibility", "groups", "options")


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
    """

    metadata: Metadata = field(default_factory=Metadata)
    model: str | None = None
    catalogs: tuple[str, ...] = ()
    compatibility: Compatibility = field(default_factory=Compatibility)
    groups: Mapping[str, bool] = field(default_factory=dict)
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @classmethod
    def from_file(cls, path: Path) -> Recipe:
        """Read a recipe that stands on its own.

        Raises
        ------
        OptimizationConfigError
            If its content is wrong; the message names file, line and key.
        """
        return cls.from_document(read_yaml(path))

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
