# SPDX-License-Identifier: Apache-2.0
"""Definitions in a source text: where each begins and ends and what its qualified name is.

Live and static evidence both read definitions through this module, so that they cannot differ in what they hash.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

Definition: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True)
class Found:
    """A definition in a source text.

    Parameters
    ----------
    qualname : str
        Its qualified name; its bare name where only its own lines were read.
    node : ast.AST
        Its syntax tree.
    text : str
        Its lines, those of its decorators included.
    line : int
        Its first line, that of its first decorator where it has one (1-based).
    """

    qualname: str
    node: Definition
    text: str
    line: int


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
        line = first_line(node)
        return Found(qualname, node, "\n".join(self._lines[line - 1 : node.end_lineno]), line)


def definition_at(lines: Sequence[str], line: int, name: str) -> Found | None:
    """The definition called `name` that begins at `line`, without parsing what stands around it.

    Parameters
    ----------
    lines : sequence of str
        The lines of a file.
    line : int
        Where the definition with its decorators begins (1-based).
    name : str
        Its name.

    Returns
    -------
    Found or None
        None where it is not there, or where its lines alone do not parse.
    """
    if not 0 < line <= len(lines):
        return None
    block = [text.rstrip("\r\n") for text in _block(lines, line - 1)]
    indented = block[0][:1] in " \t"
    try:
        body: list[ast.stmt] = ast.parse("\n".join(["if 1:", *block] if indented else block)).body
    except SyntaxError:
        return None
    node = body[0].body[0] if indented and isinstance(body[0], ast.If) else body[0]
    offset = 1 if indented else 0
    if not isinstance(node, Definition) or node.name != name or first_line(node) != 1 + offset:
        return None
    return Found(name, node, "\n".join(block[: (node.end_lineno or 0) - offset]), line)


def _block(lines: Sequence[str], start: int) -> Sequence[str]:
    """The lines from `start` to where a line that is no deeper ends the definition.

    A cut inside a string or a bracket leaves what does not parse, never what parses as something else.
    """
    depth = _depth(lines[start])
    header = False
    for index in range(start, len(lines)):
        text = lines[index].strip()
        if not text or text[0] == "#":
            continue
        if _depth(lines[index]) <= depth:
            if header and text[0] not in ")]}":
                return lines[start:index]
            header = header or text.startswith(("def ", "async ", "class "))
    return lines[start:]


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip(" \t"))


def _definitions(parent: ast.AST) -> Iterator[Definition]:
    """Definitions below `parent` that no other definition encloses (those under `if`, `try`, `with` count)."""
    for child in ast.iter_child_nodes(parent):
        if isinstance(child, Definition):
            yield child
        elif not isinstance(child, ast.expr):
            yield from _definitions(child)
