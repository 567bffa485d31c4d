# SPDX-License-Identifier: Apache-2.0
"""The two hashes of a definition, equal on every supported Python version.

`source-v1` is the SHA-256 of the definition's text, dedented, with LF line ends and without white space at its end.
`ast-v1` is the SHA-256 of its syntax tree written as `Type(field=value,...)`: node types and fields in the order that
`ast` gives them, without positions, without fields that are None or an empty list, without `kind` and `type_params`,
without empty constants inside f-strings. Docstrings and decorators are part of both.
"""

from __future__ import annotations

import ast
import hashlib
import textwrap
from collections.abc import Sequence

SOURCE = "source-v1"
AST = "ast-v1"
ARTIFACT = "artifact-v1"

# `kind` (the u of u"...") changes nothing at run time; `type_params` exists from 3.12 on only.
_LEFT_OUT = frozenset({"kind", "type_params", "type_comment", "type_ignores"})


def digest(prefix: str, text: str) -> str:
    """`prefix` and the hexadecimal SHA-256 of the UTF-8 bytes of `text`, joined by a colon."""
    return f"{prefix}:{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}"


def normalised(text: str) -> str:
    """`text` dedented, with LF line ends and one at its end."""
    return textwrap.dedent(text.replace("\r\n", "\n").replace("\r", "\n")).rstrip() + "\n"


def source_hash(text: str) -> str:
    """The `source-v1` hash of a definition's text."""
    return digest(SOURCE, normalised(text))


def ast_hash(definition: str | ast.AST | Sequence[ast.AST]) -> str:
    """The `ast-v1` hash of a definition.

    Parameters
    ----------
    definition : str, ast.AST or sequence of ast.AST
        Its text (one or more definitions), its node, or the nodes of definitions that make one object.

    Raises
    ------
    SyntaxError
        If the text does not parse on the running Python.
    """
    nodes: Sequence[ast.AST]
    if isinstance(definition, str):
        nodes = ast.parse(normalised(definition)).body
    else:
        nodes = [definition] if isinstance(definition, ast.AST) else definition
    return digest(AST, "".join(canonical(node) for node in nodes))


def canonical(node: ast.AST) -> str:
    """The text whose hash `ast-v1` is."""
    parts: list[str] = []
    _write(node, parts)
    return "".join(parts)


def _write(value: object, parts: list[str]) -> None:
    if isinstance(value, ast.AST):
        parts.append(type(value).__name__)
        parts.append("(")
        inside = isinstance(value, ast.JoinedStr)
        separator = ""
        for name in value._fields:
            item = getattr(value, name, None)
            if item is None and not (isinstance(value, ast.Constant) and name == "value"):
                continue
            if inside and isinstance(item, list):
                item = [part for part in item if not (isinstance(part, ast.Constant) and part.value == "")]
            if name in _LEFT_OUT or (isinstance(item, list) and not item):
                continue
            parts.append(f"{separator}{name}=")
            _write(item, parts)
            separator = ","
        parts.append(")")
    elif isinstance(value, list):
        parts.append("[")
        for item in value:
            _write(item, parts)
            parts.append(",")
        parts.append("]")
    else:
        # Not repr(): which characters count as printable differs between the Unicode tables of two Pythons.
        parts.append(ascii(value))
