# SPDX-License-Identifier: Apache-2.0
"""Which names a definition uses, itself and through what it calls in its own module."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from turbo_hydra.config.static.reader import StaticReader
from turbo_hydra.config.static.things import Defined
from turbo_hydra.engine.definitions import Definition


def uses(thing: Defined, reader: StaticReader) -> Iterator[tuple[str, int, str]]:
    """File, line and full name of each use; definitions of the module that it does not reach are left out."""
    module = thing.module
    body = module.index.tree.body if module.index is not None else []
    binding: dict[str, list[ast.stmt]] = {}
    for statement in body:
        for name in _bound(statement):
            binding.setdefault(name, []).append(statement)
    waiting, seen = [thing.qualname.partition(".")[0]], set[str]()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        for statement in binding.get(name, ()):
            local = _local(statement)
            for node in ast.walk(statement):
                if isinstance(node, ast.ImportFrom):
                    base = reader.names.absolute(module, "." * node.level + (node.module or ""))
                    yield from ((module.file.file, node.lineno, f"{base}.{item.name}") for item in node.names)
                elif isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load):
                    first = _first(node)
                    path = None if first is None or first in local else reader.names.dotted(module, node)
                    if path is not None:
                        yield module.file.file, node.lineno, path
                        waiting.append(str(first))


def _bound(statement: ast.stmt) -> set[str]:
    if isinstance(statement, Definition):
        return {statement.name}
    stores = (node for node in ast.walk(statement) if isinstance(node, ast.Name))
    names = {node.id for node in stores if not isinstance(node.ctx, ast.Load)}
    return names | {node.name for node in ast.walk(statement) if isinstance(node, Definition)}


def _local(statement: ast.stmt) -> set[str]:
    """Names that are parameters or variables of a definition, so that they are not the module's."""
    if not isinstance(statement, Definition):
        return set()
    names = {node.arg for node in ast.walk(statement) if isinstance(node, ast.arg)}
    names |= {node.name for node in ast.walk(statement) if isinstance(node, Definition)} - {statement.name}
    stores = (node for node in ast.walk(statement) if isinstance(node, ast.Name))
    return names | {node.id for node in stores if not isinstance(node.ctx, ast.Load)}


def _first(node: ast.expr) -> str | None:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None
