# SPDX-License-Identifier: Apache-2.0
"""Definitions in a source text: where each begins and ends and what its qualified name is.

Live and static evidence both read definitions through this module, so that they cannot differ in what they hash.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

Definition: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True)
class Found:
    """A definition in a source text."""

    qualname: str
    node: Definition
    text: str

    @property
    def line(self) -> int:
        """First line of the definition, that of its first decorator where it has one (1-based)."""
        return first_line(self.node)


def first_line(node: Definition) -> int:
    """The line where a definition with its decorators begins."""
    return min([node.lineno, *(item.lineno for item in node.decorator_list)])


class SourceIndex:
    """All definitions of one source text, nested ones too.

    Parameters
    ----------
    text : str
        The text of a module.

    Raises
    ------
    SyntaxError
        If the running Python cannot parse the text.
    """

    def __init__(self, text: str) -> None:
        # ast counts lines by \n, \r\n and \r alone; str.splitlines would also split at form feeds.
        self._lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        self.tree = ast.parse(text)
        self._by_name: dict[str, list[Definition]] = {}
        self._by_line: dict[int, list[str]] = {}
        self._collect(self.tree, "")

    def _collect(self, parent: ast.AST, prefix: str) -> None:
        for node in _definitions(parent):
            qualname = prefix + node.name
            self._by_name.setdefault(qualname, []).append(node)
            self._by_line.setdefault(first_line(node), []).append(qualname)
            self._collect(node, qualname + ("." if isinstance(node, ast.ClassDef) else ".<locals>."))

    def named(self, qualname: str) -> tuple[Found, ...]:
        """The definitions of that qualified name, in the order of the text."""
        return tuple(self._found(qualname, node) for node in self._by_name.get(qualname, ()))

    def at(self, line: int, name: str) -> Found | None:
        """The definition called `name` that begins at `line`, its decorators counted in."""
        for qualname in self._by_line.get(line, ()):
            if qualname.rpartition(".")[2] == name:
                for node in self._by_name[qualname]:
                    if first_line(node) == line:
                        return self._found(qualname, node)
        return None

    def _found(self, qualname: str, node: Definition) -> Found:
        lines = self._lines[first_line(node) - 1 : node.end_lineno]
        return Found(qualname, node, "\n".join(lines))


def _definitions(parent: ast.AST) -> Iterator[Definition]:
    """Definitions below `parent` that no other definition encloses (those under `if`, `try`, `with` count)."""
    for child in ast.iter_child_nodes(parent):
        if isinstance(child, Definition):
            yield child
        elif not isinstance(child, ast.expr):
            yield from _definitions(child)
