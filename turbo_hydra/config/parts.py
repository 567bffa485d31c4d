# SPDX-License-Identifier: Apache-2.0
"""Parts that optimization configs and recipes share, and how each is read."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from turbo_hydra.config.fields import Field, did_you_mean
from turbo_hydra.engine.backend import BACKENDS
from turbo_hydra.engine.errors import OptimizationConfigError

_PART = re.compile(r"[a-z0-9_]+")
_MODULE = re.compile(r"[^\W\d]\w*(\.\w+)*")


@dataclass(frozen=True)
class Metadata:
    """What the config is called."""

    id: str = ""
    version: str = ""
    description: str = ""


@dataclass(frozen=True)
class Compatibility:
    """What the evidence was taken at; a mismatch is a check in the report.

    Parameters
    ----------
    commits : tuple of str
        Commits of the model's repository.
    dependencies : dict
        Distribution name to a version specifier such as `>=2.7`.
    backends : tuple of str
        Kinds of device that were validated, as `runtime.accelerator` names them; none says nothing about them.
    allow_dirty : bool
        Whether uncommitted changes in the model's repository are only a warning; the evidence of each target is
        compared either way.
    """

    commits: tuple[str, ...] = ()
    dependencies: Mapping[str, str] = field(default_factory=dict)
    backends: tuple[str, ...] = ()
    allow_dirty: bool = True


def nested(flat: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """`{"a.b": x}` as `{"a": {"b": x}}`, in the same order."""
    tree: dict[str, dict[str, Any]] = {}
    for id, value in flat.items():
        catalog, _, name = id.partition(".")
        tree.setdefault(catalog, {})[name] = value
    return tree


def check_header(root: Field, schema_version: str, kind: str) -> None:
    """Refuse another `schema_version` or `kind`.

    Raises
    ------
    OptimizationConfigError
        If one of them is missing or differs.
    """
    for key, expected in (("schema_version", schema_version), ("kind", kind)):
        if root[key].value != expected:
            found = f"found {root[key].value!r}" if key in root.document.data else "it is missing"
            raise OptimizationConfigError(f"{root[key].place}: '{key}' must be {expected!r}, {found}")


def read_metadata(item: Field) -> Metadata:
    """The `metadata` of a config or recipe."""
    item.mapping(("id", "version", "description"))
    return Metadata(item["id"].text(), item["version"].text(), item["description"].text())


def read_model(item: Field) -> str | None:
    """The name in `model`."""
    item.mapping(("name",))
    return item["name"].string()


def read_catalogs(item: Field) -> tuple[str, ...]:
    """The module names in `catalogs`, each once."""
    names = item.strings()
    for name in names:
        if not _MODULE.fullmatch(name):
            item.refuse("a list of module names such as turbo_hydra.catalogs.torch")
    return tuple(dict.fromkeys(names))


def read_compatibility(item: Field) -> Compatibility:
    """The `compatibility` of a config or recipe."""
    item.mapping(("commits", "dependencies", "backends", "allow_dirty"))
    dependencies = {}
    for name, specifier in item["dependencies"].mapping().items():
        dependencies[name] = specifier.string() or specifier.refuse("a version specifier such as '>=2.7'")
    backends = item["backends"].strings()
    for name in backends:
        if name not in BACKENDS:
            place = item["backends"].place
            raise OptimizationConfigError(
                f"{place}: '{item.name}.backends' names '{name}', which is no kind of device that "
                f"runtime.accelerator names{did_you_mean(name, BACKENDS)}"
            )
    return Compatibility(item["commits"].strings(), dependencies, backends, item["allow_dirty"].boolean(True))


def read_groups(item: Field) -> dict[str, bool]:
    """`{"catalog.group": bool}` from the two levels of `groups`; null says nothing about a group."""
    groups = {}
    for catalog, names in item.mapping().items():
        _part(names, catalog)
        for name, toggle in names.mapping().items():
            _part(toggle, name)
            if toggle.value is not None:
                groups[f"{catalog}.{name}"] = toggle.boolean(False)
    return groups


def read_options(item: Field) -> dict[str, dict[str, Any]]:
    """`{"catalog.group": {option: value}}` from `options`."""
    options = {}
    for catalog, names in item.mapping().items():
        _part(names, catalog)
        for name, values in names.mapping().items():
            _part(values, name)
            found = {key: option.value for key, option in values.mapping().items()}
            for key, value in found.items():
                if not _is_plain(value):
                    values[key].refuse("plain data (numbers, strings, lists, mappings)")
            if found:
                options[f"{catalog}.{name}"] = found
    return options


def _part(item: Field, name: str) -> None:
    if not _PART.fullmatch(name):
        raise OptimizationConfigError(
            f"{item.place}: '{item.name}': each part of a group id is made of a-z, 0-9 and _; found {name!r}"
        )


def _is_plain(value: object) -> bool:
    if isinstance(value, float) and not math.isfinite(value):
        return False
    try:
        return bool(json.loads(json.dumps(value)) == value)
    except (TypeError, ValueError):
        return False
