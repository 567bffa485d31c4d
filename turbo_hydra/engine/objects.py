# SPDX-License-Identifier: Apache-2.0
"""Objects that a catalog names by dotted path: replacements, factories, conditions and checks."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterable
from typing import Any

from turbo_hydra.engine.canonical import ast_hash
from turbo_hydra.engine.declarations import Group


def load_object(path: str) -> Any:
    """Import the module that a dotted path begins with and return the object that it ends with.

    Raises
    ------
    AttributeError
        If the module has no such attribute.
    Exception
        Whatever importing the module raises.
    """
    parts = path.split(".")
    for count in range(len(parts) - 1, 0, -1):
        name = ".".join(parts[:count])
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not (name == error.name or name.startswith(error.name + ".")):
                raise
            continue
        value: Any = module
        for part in parts[count:]:
            value = getattr(value, part)
        return value
    raise ModuleNotFoundError(f"no module named '{parts[0]}'", name=parts[0])


def replacement_hash(group: Group) -> str | None:
    """`ast-v1` hash of the modules that hold the group's replacements, helpers beside them included.

    The modules are read, not executed. None where one of them has no source, or none that this Python parses.
    """
    return _hash_of({member.replacement.rpartition(".")[0] for member in group.members if member.replacement})


def catalog_hash(catalog: str, groups: Iterable[Group]) -> str | None:
    """`ast-v1` hash of the module `catalog` and of those below it that declare these groups; they are read again.

    None where one of them has no source, or none that this Python parses.
    """
    below = {group.catalog for group in groups if group.catalog.startswith(f"{catalog}.")}
    return _hash_of({catalog, *below})


def _hash_of(modules: set[str]) -> str | None:
    trees = []
    for module in sorted(modules):
        text = _source(module)
        if text is None:
            return None
        try:
            trees.append(ast_hash(text))
        except SyntaxError:
            return None
    return ast_hash(repr(trees)) if len(trees) > 1 else (trees[0] if trees else None)


def _source(module: str) -> str | None:
    while module:
        try:
            spec = importlib.util.find_spec(module)
            loader = spec.loader if spec is not None else None
            source = loader.get_source(module) if loader is not None and hasattr(loader, "get_source") else None
        except Exception:  # finding a module executes the packages around it
            return None
        if spec is not None:
            return source if isinstance(source, str) else None
        module = module.rpartition(".")[0]
    return None
