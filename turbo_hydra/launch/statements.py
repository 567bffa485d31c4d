# SPDX-License-Identifier: Apache-2.0
"""Executing a script statement by statement, so that its names can be bound to other objects as soon as they exist."""

from __future__ import annotations
import __future__

import ast
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType
from typing import Any


def compiled(source: bytes, filename: str) -> Iterator[CodeType]:
    """Compile a script; the code of each top-level statement follows when it is asked for.

    Each code object is what the statement would be inside the whole module: file name, line numbers, `from __future__`
    in force, the first text as the docstring.

    Parameters
    ----------
    source : bytes
        The text, with whatever encoding it declares.
    filename : str
        Shown in tracebacks.

    Raises
    ------
    SyntaxError
        Before any statement is given, as Python does: also for what only the compiler sees (`return` at the top).
    """
    compile(source, filename, "exec", dont_inherit=True)
    tree = compile(source, filename, "exec", ast.PyCF_ONLY_AST, dont_inherit=True)
    assert isinstance(tree, ast.Module)
    return _codes(tree, filename)


def _codes(tree: ast.Module, filename: str) -> Iterator[CodeType]:
    flags = 0
    for position, statement in enumerate(tree.body):
        if isinstance(statement, ast.ImportFrom) and statement.module == "__future__" and statement.level == 0:
            for alias in statement.names:
                flags |= getattr(__future__, alias.name).compiler_flag
        if position and isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            # A constant that stands alone does nothing; compiled by itself, a text would become the docstring.
            continue
        module = ast.Module(body=[statement], type_ignores=[])
        yield compile(module, filename, "exec", flags, dont_inherit=True)


def execute(path: Path, filename: str, namespace: dict[str, Any], after_each: Callable[[], None]) -> None:
    """Execute a script's statements in a namespace.

    Parameters
    ----------
    path : Path
        The script.
    filename : str
        Shown in tracebacks.
    namespace : dict
        The globals of the module that it becomes.
    after_each : callable
        Called after each statement.
    """
    for code in compiled(path.read_bytes(), filename):
        exec(code, namespace)
        after_each()
