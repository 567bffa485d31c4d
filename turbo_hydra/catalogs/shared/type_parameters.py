# SPDX-License-Identifier: Apache-2.0
"""Source text with type parameters (PEP 695, Python 3.12) as older Pythons read it; line numbers stay.

    class A[T](B):     class A(B, Generic[T]):
    def f[T: int](x):  def f(x):
    type C[T] = D[T]   C = D[T]

Each parameter becomes a `TypeVar` (`TypeVarTuple`, `ParamSpec`) of the module, defined on a line that is there: behind
the last `from __future__ import` or the docstring, else before the first statement. What differs from Python 3.12: the
names are the module's, the right side of `type C = ...` is computed at once, and nothing has `__type_params__`.
Bounds are kept as text, since they may name what is defined further down; defaults of parameters are dropped.
"""

from __future__ import annotations

import ast
import io
import itertools
import keyword
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from tokenize import TokenInfo
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from turbo_hydra.compatibility import ImportContext

_TYPING = "_type_parameters"
_KINDS = {"": "TypeVar", "*": "TypeVarTuple", "**": "ParamSpec"}
_LAYOUT = (tokenize.COMMENT, tokenize.NL, tokenize.INDENT, tokenize.DEDENT)
_OPENING, _CLOSING = "([{", ")]}"
_COMPOUND = ("@", "async", "class", "def", "for", "if", "match", "try", "while", "with")
Position = tuple[int, int]


@dataclass(frozen=True)
class _Parameter:
    name: str
    stars: str = ""
    limits: tuple[str, ...] = ()

    @property
    def definition(self) -> str:
        given = [repr(self.name)]
        if len(self.limits) == 1:
            given.append(f"bound={self.limits[0]!r}")
        else:
            given += [repr(item) for item in self.limits]
        return f"{self.name} = {_TYPING}.{_KINDS[self.stars]}({', '.join(given)})"

    @property
    def in_generic(self) -> str:
        return f"{_TYPING}.Unpack[{self.name}]" if self.stars == "*" else self.name


@dataclass(frozen=True)
class _Edit:
    start: Position
    end: Position
    text: str


def source(text: str | None, context: ImportContext) -> str:
    """The text as it is where Python reads it, lowered where it is older; for `replace_import(..., source=...)`.

    Raises
    ------
    SyntaxError
        As `lowered` does.
    ModuleNotFoundError
        If there is no such module.
    """
    if text is None:
        raise ModuleNotFoundError(f"No module named {context.module!r}", name=context.module)
    if sys.version_info >= (3, 12):
        return text
    return lowered(text, context.module)


def lowered(text: str, name: str = "<text>") -> str:
    """Rewrite `text` for a Python without type parameters; what has none is given back as it is.

    Parameters
    ----------
    text : str
        Source of a module.
    name : str
        Of the module, for messages.

    Raises
    ------
    SyntaxError
        If the module has another use for a parameter's name, or no line on which parameters could be defined.
    """
    tokens = [item for item in tokenize.generate_tokens(io.StringIO(text).readline) if item.type not in _LAYOUT]
    parameters: list[_Parameter] = []
    edits: list[_Edit] = []
    for index in _statements(tokens):
        _rewrite(tokens, index, text.splitlines(), edits, parameters)
    if not edits:
        return text
    plain = _applied(text, edits)
    defined = _defined(parameters, ast.parse(plain, name), name)
    if not parameters:
        return plain
    definitions = "; ".join([f"import typing as {_TYPING}", *(item.definition for item in defined)])
    return _applied(text, [*edits, _place(tokens, definitions, name)])


def _statements(tokens: list[TokenInfo]) -> Iterator[int]:
    """Indices of the tokens that begin a line of code."""
    begins = True
    for index, token in enumerate(tokens):
        if begins and token.type != tokenize.NEWLINE:
            yield index
        begins = token.type == tokenize.NEWLINE


def _rewrite(
    tokens: list[TokenInfo], index: int, lines: list[str], edits: list[_Edit], parameters: list[_Parameter]
) -> None:
    """Add what is to be done about the statement that begins at `index`."""
    words = [item.string for item in tokens[index : index + 4]]
    if words[0] == "async":
        index, words = index + 1, words[1:]
    if words[0] in ("class", "def") and words[2:3] == ["["]:
        found: list[_Parameter] = []
        after = _drop(tokens, index + 2, lines, edits, found)
        if words[0] == "class":
            edits.append(_with_generic(tokens, after, f"{_TYPING}.Generic[{', '.join(p.in_generic for p in found)}]"))
        parameters += found
    elif _is_alias(tokens, index, words):
        edits.append(_Edit(tokens[index].start, tokens[index + 1].start, ""))
        if words[2] == "[":
            _drop(tokens, index + 2, lines, edits, parameters)


def _is_alias(tokens: list[TokenInfo], index: int, words: list[str]) -> bool:
    if words[0] != "type" or len(words) < 3 or keyword.iskeyword(words[1]) or not words[1].isidentifier():
        return False
    return words[2] == "=" or (words[2] == "[" and tokens[_closing(tokens, index + 2) + 1].string == "=")


def _drop(
    tokens: list[TokenInfo], opening: int, lines: list[str], edits: list[_Edit], parameters: list[_Parameter]
) -> int:
    """Take a list of parameters out; returns the index of the token behind it."""
    closing = _closing(tokens, opening)
    start, end = tokens[opening].start, tokens[closing].end
    edits.append(_Edit(start, end, "\\\n" * (end[0] - start[0])))
    first = opening + 1
    for last in [*_commas(tokens, opening, closing), closing]:
        if last > first:
            parameters.append(_parameter(tokens[first:last], lines))
        first = last + 1
    return closing + 1


def _parameter(tokens: list[TokenInfo], lines: list[str]) -> _Parameter:
    stars = tokens[0].string if tokens[0].string in ("*", "**") else ""
    words = tokens[1:] if stars else tokens
    depth, end = 0, len(words)
    for index, item in enumerate(words):
        depth += (item.string in _OPENING) - (item.string in _CLOSING)
        if depth == 0 and item.string == "=":
            end = index
            break
    bound = words[2:end] if words[1:2] and words[1].string == ":" else []
    if not bound:
        return _Parameter(words[0].string, stars)
    inner = (
        [*_commas(bound, 0, len(bound) - 1)] if bound[0].string == "(" and _closing(bound, 0) == len(bound) - 1 else []
    )
    if not inner:
        return _Parameter(words[0].string, stars, (_text(bound, lines),))
    edges = [0, *inner, len(bound) - 1]
    parts = [bound[a + 1 : b] for a, b in itertools.pairwise(edges)]
    return _Parameter(words[0].string, stars, tuple(_text(part, lines) for part in parts if part))


def _text(tokens: list[TokenInfo], lines: list[str]) -> str:
    """The tokens as they stand in the text, on one line."""
    (row, column), (last, end) = tokens[0].start, tokens[-1].end
    if row == last:
        return lines[row - 1][column:end]
    return " ".join(item.string for item in tokens)


def _with_generic(tokens: list[TokenInfo], after: int, generic: str) -> _Edit:
    """Name Generic as the last base: behind the other bases, before keywords such as metaclass."""
    if tokens[after].string != "(":
        return _Edit(tokens[after].start, tokens[after].start, f"({generic})")
    closing = _closing(tokens, after)
    first = after + 1
    for last in [*_commas(tokens, after, closing), closing]:
        if tokens[first].string == "**" or (last - first > 1 and tokens[first + 1].string == "="):
            return _Edit(tokens[first].start, tokens[first].start, f"{generic}, ")
        first = last + 1
    before = "" if tokens[closing - 1].string in ("(", ",") else ", "
    return _Edit(tokens[closing].start, tokens[closing].start, before + generic)


def _closing(tokens: list[TokenInfo], opening: int) -> int:
    depth = 0
    for index in range(opening, len(tokens)):
        depth += (tokens[index].string in _OPENING) - (tokens[index].string in _CLOSING)
        if depth == 0:
            return index
    raise SyntaxError(f"'{tokens[opening].string}' in line {tokens[opening].start[0]} was never closed")


def _commas(tokens: list[TokenInfo], opening: int, closing: int) -> Iterator[int]:
    """Indices of the commas that stand directly between two brackets."""
    depth = 0
    for index in range(opening, closing + 1):
        depth += (tokens[index].string in _OPENING) - (tokens[index].string in _CLOSING)
        if depth == 1 and tokens[index].string == ",":
            yield index


def _applied(text: str, edits: list[_Edit]) -> str:
    lines = text.splitlines(keepends=True)
    for edit in sorted(edits, key=lambda item: item.start, reverse=True):
        (row, column), (last, end) = edit.start, edit.end
        lines[row - 1 : last] = [lines[row - 1][:column] + edit.text + lines[last - 1][end:], *[""] * (last - row)]
    return "".join(lines)


def _defined(parameters: list[_Parameter], tree: ast.Module, name: str) -> list[_Parameter]:
    """One definition for each name; none for those that the module has as type variables itself."""
    bound = dict(_bindings(tree.body))
    chosen: dict[str, _Parameter] = {}
    for item in parameters:
        known = chosen.setdefault(item.name, item)
        if known.stars != item.stars or (item.name in bound and bound[item.name] != _KINDS[item.stars]):
            raise SyntaxError(
                f"{name}: the type parameter '{item.name}' has the name of something else in its module; this Python "
                "cannot run it, 3.12 and newer can"
            )
        if known.limits != item.limits:
            chosen[item.name] = _Parameter(item.name, item.stars)
    return [item for item in chosen.values() if item.name not in bound]


def _bindings(body: list[ast.stmt]) -> Iterator[tuple[str, str]]:
    """Names that a module binds, each with what it is: `TypeVar` and its like, or nothing."""
    for statement in body:
        for node in ast.walk(statement) if not isinstance(statement, _SCOPES) else ():
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.id, _made_by(statement)
            elif isinstance(node, ast.alias):
                yield (node.asname or node.name).partition(".")[0], ""
            elif isinstance(node, _SCOPES):
                yield node.name, ""
        if isinstance(statement, _SCOPES):
            yield statement.name, ""


_SCOPES = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def _made_by(statement: ast.stmt) -> str:
    call = statement.value if isinstance(statement, (ast.Assign, ast.AnnAssign)) else None
    if not isinstance(call, ast.Call):
        return ""
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _place(tokens: list[TokenInfo], definitions: str, name: str) -> _Edit:
    """Where parameters are defined, on a line that is there."""
    starts = list(_statements(tokens))
    futures = [
        index for index in starts if [item.string for item in tokens[index : index + 2]] == ["from", "__future__"]
    ]
    first = starts[0]
    docstring = tokens[first].type == tokenize.STRING and tokens[first + 1].type == tokenize.NEWLINE
    if futures or docstring:
        end = next(item for item in tokens[(futures or [first])[-1] :] if item.type == tokenize.NEWLINE)
        before = tokens[tokens.index(end) - 1].end
        return _Edit(before, before, f"; {definitions}")
    row, column = tokens[first].start
    if tokens[first].string not in _COMPOUND:
        return _Edit((row, column), (row, column), f"{definitions}; ")
    if row > 1:  # what stands above the first statement is blank or a comment
        return _Edit((row - 1, 0), (row - 1, 0), f"{definitions}  ")
    raise SyntaxError(f"{name}: there is no line before the first statement on which type parameters could be defined")
