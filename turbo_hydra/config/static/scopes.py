# SPDX-License-Identifier: Apache-2.0
"""What a module or class body binds to a name, read from the syntax tree."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from turbo_hydra.engine.definitions import Definition, first_line


@dataclass(frozen=True)
class Binding:
    """One statement that binds a name.

    Parameters
    ----------
    name : str
        The name; `*` for a star import.
    line : int
        Where the statement begins.
    conditional : bool
        Whether it stands under an `if`, a loop, a `try` or its like, so that it may not run.
    node : ast.AST
        A definition, the expression that is assigned, or the import statement; `ast.Delete` for a deletion.
    module, attribute : str or None
        For imports: the module, absolute or with leading dots, and the name taken from it.
    """

    name: str
    line: int
    conditional: bool
    node: ast.AST
    module: str | None = None
    attribute: str | None = None


class Scope:
    """The names that a body binds, each with its bindings in the order of the text.

    Parameters
    ----------
    body : iterable of ast.stmt
        The statements of a module or class.
    prefix : str
        What the qualified names of its definitions begin with.
    """

    def __init__(self, body: Iterable[ast.stmt], prefix: str = "") -> None:
        self.prefix = prefix
        self.names: dict[str, list[Binding]] = {}
        self.stars: list[Binding] = []
        self.attributes: dict[tuple[str, str], int] = {}
        for binding in _bindings(body, False):
            if binding.name == "*":
                self.stars.append(binding)
            else:
                self.names.setdefault(binding.name, []).append(binding)
        for owner, attribute, line in _attribute_assignments(body):
            self.attributes[owner, attribute] = line

    def get(self, name: str) -> list[Binding]:
        """The bindings that may be in force at the end: what a later unconditional one replaces is left out."""
        found: list[Binding] = []
        for binding in self.names.get(name, ()):
            if not binding.conditional and not _refines(binding, name):
                found.clear()
            found.append(binding)
        return [binding for binding in found if not _is_overload(binding.node)]


def is_decorated_as(node: ast.AST, *names: str) -> bool:
    """Whether one of the decorators ends in one of the names, called or not."""
    if not isinstance(node, Definition):
        return False
    for item in node.decorator_list:
        expression = item.func if isinstance(item, ast.Call) else item
        last = expression.attr if isinstance(expression, ast.Attribute) else getattr(expression, "id", None)
        if last in names:
            return True
    return False


def _is_overload(node: ast.AST) -> bool:
    return is_decorated_as(node, "overload")


def _refines(binding: Binding, name: str) -> bool:
    """Whether a definition builds on what the name held before: the accessors of one property do."""
    if not isinstance(binding.node, Definition):
        return False
    return any(
        isinstance(item, ast.Attribute)
        and item.attr in ("getter", "setter", "deleter")
        and isinstance(item.value, ast.Name)
        and item.value.id == name
        for item in binding.node.decorator_list
    )


def _bindings(body: Iterable[ast.stmt], conditional: bool) -> Iterator[Binding]:
    for node in body:
        if isinstance(node, Definition):
            yield Binding(node.name, first_line(node), conditional, node)
        elif isinstance(node, ast.Import):
            for item in node.names:
                name = item.asname or item.name.partition(".")[0]
                yield Binding(name, node.lineno, conditional, node, item.name if item.asname else name)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            for item in node.names:
                yield Binding(item.asname or item.name, node.lineno, conditional, node, module, item.name)
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                yield from _assigned(target, node.value, conditional)
        elif isinstance(node, (ast.AnnAssign, ast.AugAssign)):
            if node.value is not None:
                yield from _assigned(node.target, node.value, conditional)
        elif isinstance(node, ast.Delete):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    yield Binding(target.id, node.lineno, conditional, node)
        else:
            yield from _inside(node, conditional)


def _inside(node: ast.stmt, conditional: bool) -> Iterator[Binding]:
    if isinstance(node, ast.If):
        truth = _known_truth(node.test)
        if truth is not False:
            yield from _bindings(node.body, conditional or truth is None)
        if truth is not True:
            yield from _bindings(node.orelse, conditional or truth is None)
    elif isinstance(node, (ast.With, ast.AsyncWith)):
        for item in node.items:
            if item.optional_vars is not None:
                yield from _assigned(item.optional_vars, item.context_expr, conditional)
        yield from _bindings(node.body, conditional)
    elif isinstance(node, (ast.For, ast.AsyncFor)):
        yield from _assigned(node.target, node.iter, True)
        yield from _bindings([*node.body, *node.orelse], True)
    elif isinstance(node, ast.While):
        yield from _bindings([*node.body, *node.orelse], True)
    elif isinstance(node, ast.Try) or type(node).__name__ == "TryStar":
        for part in ("body", "orelse"):
            yield from _bindings(getattr(node, part), True)
        for handler in getattr(node, "handlers", ()):
            yield from _bindings(handler.body, True)
        yield from _bindings(getattr(node, "finalbody", ()), conditional)
    elif isinstance(node, ast.Match):
        for case in node.cases:
            yield from _bindings(case.body, True)


def _assigned(target: ast.expr, value: ast.expr, conditional: bool) -> Iterator[Binding]:
    if isinstance(target, ast.Name):
        yield Binding(target.id, target.lineno, conditional, value)
    elif isinstance(target, (ast.Tuple, ast.List)):
        values = value.elts if isinstance(value, (ast.Tuple, ast.List)) else []
        paired = len(values) == len(target.elts) and not any(isinstance(item, ast.Starred) for item in target.elts)
        for index, item in enumerate(target.elts):
            yield from _assigned(item, values[index] if paired else value, conditional)
    elif isinstance(target, ast.Starred):
        yield from _assigned(target.value, value, conditional)


def _attribute_assignments(body: Iterable[ast.stmt]) -> Iterator[tuple[str, str, int]]:
    """`Name.attribute = ...` and `setattr(Name, "attribute", ...)`, which replace what a class body said."""
    for statement in body:
        for node in [statement] if isinstance(statement, Definition) else ast.walk(statement):
            targets = node.targets if isinstance(node, ast.Assign) else []
            for target in targets:
                if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
                    yield target.value.id, target.attr, target.lineno
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "setattr":
                owner, attribute = (*node.args, None, None)[:2]
                if isinstance(owner, ast.Name) and isinstance(attribute, ast.Constant):
                    yield owner.id, str(attribute.value), node.lineno


def _known_truth(test: ast.expr) -> bool | None:
    """The value of a condition that is the same in every run; None where it is not."""
    if isinstance(test, ast.Constant):
        return bool(test.value)
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = _known_truth(test.operand)
        return None if inner is None else not inner
    name = test.attr if isinstance(test, ast.Attribute) else getattr(test, "id", None)
    return False if name == "TYPE_CHECKING" else None
