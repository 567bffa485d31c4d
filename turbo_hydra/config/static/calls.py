# SPDX-License-Identifier: Apache-2.0
"""What a call returns, as far as the function's text tells for these arguments."""

from __future__ import annotations

import ast
import builtins
import contextlib
from collections.abc import Iterator, Mapping

from turbo_hydra.engine.definitions import Definition

# An argument that is there and not None; what else it is, is not known.
GIVEN = object()


def arguments(node: Definition, call: ast.Call, bound: int) -> dict[str, object]:
    """The parameters whose values are sure when a call gives its arguments: literals, and defaults that are."""
    if isinstance(node, ast.ClassDef) or any(isinstance(item, ast.Starred) for item in call.args):
        return {}
    if any(item.arg is None for item in call.keywords):
        return {}
    plain = [item.arg for item in (*node.args.posonlyargs, *node.args.args)]
    values: dict[str, ast.expr | None] = {}
    values |= dict(zip(reversed(plain), reversed(node.args.defaults), strict=False))
    values |= dict(zip((item.arg for item in node.args.kwonlyargs), node.args.kw_defaults, strict=True))
    values |= dict(zip(plain[bound:], call.args, strict=False))
    values |= {item.arg: item.value for item in call.keywords if item.arg is not None}
    known: dict[str, object] = {}
    for name in values.keys() - assigned(node):
        value = values[name]
        with contextlib.suppress(ValueError, TypeError):
            known |= {name: ast.literal_eval(value)} if value is not None else {}
    return known


def assigned(node: Definition) -> set[str]:
    """The names that a function's text gives a value, those inside nested functions too."""
    return {item.id for item in ast.walk(node) if isinstance(item, ast.Name) and not isinstance(item.ctx, ast.Load)}


def returns(body: list[ast.stmt], known: Mapping[str, object]) -> Iterator[ast.expr]:
    """What the body returns, nested functions left out, and what is not reached with these arguments given or not."""
    for statement in body:
        if isinstance(statement, Definition):
            continue
        if isinstance(statement, ast.Return):
            yield statement.value or ast.Constant(None)
        elif isinstance(statement, ast.If):
            truth = _truth(statement.test, known)
            if truth is not False:
                yield from returns(statement.body, known)
            if truth is not True:
                yield from returns(statement.orelse, known)
            if truth is True and statement.body and isinstance(statement.body[-1], ast.Return):
                return
        else:
            for name in ("body", "orelse", "finalbody"):
                yield from returns(getattr(statement, name, []), known)


def _truth(test: ast.expr, known: Mapping[str, object]) -> bool | None:
    """The value of `name is None` or `isinstance(name, str)`, where that is known."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = _truth(test.operand, known)
        return None if inner is None else not inner
    if isinstance(test, ast.Call) and isinstance(test.func, ast.Name) and test.func.id == "isinstance":
        return _is_instance(test.args, known)
    if not isinstance(test, ast.Compare) or not isinstance(test.left, ast.Name) or test.left.id not in known:
        return None
    right = test.comparators[0]
    if len(test.ops) != 1 or not (isinstance(right, ast.Constant) and right.value is None):
        return None
    is_none = known[test.left.id] is None
    if isinstance(test.ops[0], ast.Is):
        return is_none
    return not is_none if isinstance(test.ops[0], ast.IsNot) else None


def _is_instance(arguments: list[ast.expr], known: Mapping[str, object]) -> bool | None:
    name, cls = arguments if len(arguments) == 2 else (None, None)
    if not isinstance(name, ast.Name) or not isinstance(cls, ast.Name) or known.get(name.id, GIVEN) is GIVEN:
        return None
    kind = getattr(builtins, cls.id, None)
    return isinstance(known[name.id], kind) if isinstance(kind, type) else None
