# SPDX-License-Identifier: Apache-2.0
"""Whether the code that was loaded is that of the file as it is now.

Evidence is read from files, and a file may be edited between the import of its module and the reading. Then the text
says what the next process will run, not what this one does.
"""

from __future__ import annotations

import contextlib
import functools
import os
import time
import types
from collections.abc import Iterator
from typing import Any

# A file that is older than this process was not edited after its import: nothing needs to be compiled for it.
_STARTED = time.time() - 1
_NAMES = ("co_name", "co_names", "co_varnames", "co_freevars", "co_cellvars", "co_argcount", "co_kwonlyargcount")


def edited_since_start(file: str) -> bool:
    """Whether the file was written while this process ran; False where there is no such file (an archive's member)."""
    try:
        return os.stat(file).st_mtime > _STARTED
    except OSError:
        return False


class CompiledFile:
    """The code objects that a file's text makes.

    Parameters
    ----------
    text : str
        What the file holds now; where it does not parse, it makes nothing.
    file : str
        For messages of the compiler.
    """

    def __init__(self, text: str, file: str) -> None:
        self._codes: dict[tuple[int, str], list[types.CodeType]] = {}
        with contextlib.suppress(SyntaxError):
            self._collect(compile(text, file, "exec", dont_inherit=True))

    def _collect(self, code: types.CodeType) -> None:
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                self._codes.setdefault((constant.co_firstlineno, constant.co_name), []).append(constant)
                self._collect(constant)

    def has(self, code: types.CodeType) -> bool:
        """Whether the file makes this code object, at this line."""
        candidates = self._codes.get((code.co_firstlineno, code.co_name), ())
        return any(_same(code, candidate) for candidate in candidates)


def functions_of_class(cls: type) -> Iterator[types.FunctionType]:
    """The functions that a class itself holds, those of its properties and other descriptors too."""
    for value in vars(cls).values():
        inner: list[Any] = [value]
        if isinstance(value, property):
            inner = [value.fget, value.fset, value.fdel]
        elif isinstance(value, (staticmethod, classmethod)):
            inner = [value.__func__]
        elif isinstance(value, functools.cached_property):
            inner = [value.func]
        yield from (item for item in inner if isinstance(item, types.FunctionType))


def _same(first: Any, second: Any) -> bool:
    if not isinstance(first, types.CodeType) or not isinstance(second, types.CodeType):
        # repr tells 1 from True and from 1.0, also inside a tuple; a frozenset's says nothing of its order.
        return bool(first == second) and (isinstance(first, frozenset) or repr(first) == repr(second))
    # Not ==: it compares the file's name, and on Python 3.11 what the interpreter has learnt about running code.
    return (
        first.co_code == second.co_code
        and first.co_flags == second.co_flags
        and all(getattr(first, name) == getattr(second, name) for name in _NAMES)
        and len(first.co_consts) == len(second.co_consts)
        and all(map(_same, first.co_consts, second.co_consts))
    )
