# SPDX-License-Identifier: Apache-2.0
"""Whether loaded code is that of its file: equal for the same text, different for whatever an edit changes."""

from __future__ import annotations

import functools
import marshal
import os
import time
import types
from pathlib import Path
from typing import Any

import pytest

from turbo_hydra.engine.loaded_code import CompiledFile, edited_since_start, functions_of_class

FILE = "/nowhere/lib.py"
TEXT = '''
import functools

def plain(x, y=1, *args, z=2, **kwargs):
    """What it does."""
    kinds = {"a", "b", "c", "d", "e"}
    if x in {"a", "b", "c", "d", "e"}:
        return (1, True, 1.0, b"1", None, ..., kinds)
    return [item + y for item in args if item]

def outer(a):
    free = a
    def inner(b):
        nonlocal free
        free += b
        return lambda: (free, b)
    return inner

async def coroutine(x):
    async with x as y:
        yield y

first, second = lambda: 1, lambda: 2

class C:
    def m(self):
        return super().__repr__()
'''


def load(text: str, name: str) -> types.CodeType:
    """The code of a function of a module of this text, as its import makes it."""
    space: dict[str, Any] = {"__name__": "lib"}
    exec(compile(text, FILE, "exec", dont_inherit=True), space)
    code: types.CodeType = getattr(space[name], "m", space[name]).__code__
    return code


@pytest.mark.parametrize("name", ["plain", "outer", "coroutine", "first", "second", "C"])
def test_a_text_makes_the_code_that_was_loaded_from_it(name: str) -> None:
    made = CompiledFile(TEXT, FILE)
    assert made.has(load(TEXT, name))
    assert CompiledFile(TEXT, "/elsewhere/lib.py").has(load(TEXT, name)), "the file's name is not a part of it"


def test_code_that_has_run_often_is_still_that_of_its_text() -> None:
    text = "def f(x):\n    total = 0\n    for item in range(x):\n        total += item * 2\n    return total\n"
    space: dict[str, Any] = {}
    exec(compile(text, FILE, "exec", dont_inherit=True), space)
    for _ in range(200):
        space["f"](20)
    assert CompiledFile(text, FILE).has(space["f"].__code__)


def test_a_set_that_came_back_from_a_cache_file_in_another_order_is_the_same() -> None:
    text = "def f(x):\n    return x in {120, 128, 152}\n"
    code = load(text, "f")
    cached = marshal.loads(marshal.dumps(code))
    kept, came_back = (next(item for item in made.co_consts if isinstance(item, frozenset)) for made in (code, cached))
    assert (kept == came_back, repr(kept) == repr(came_back)) == (True, False), "another order"
    assert CompiledFile(text, FILE).has(cached)


def test_functions_within_functions_are_found() -> None:
    space: dict[str, Any] = {}
    exec(compile(TEXT, FILE, "exec", dont_inherit=True), space)
    inner = space["outer"](1)
    made = CompiledFile(TEXT, FILE)
    assert made.has(inner.__code__)
    assert made.has(inner(1).__code__)


EDITS = {
    "another constant": ("def f(x):\n    return x + 1\n", "def f(x):\n    return x + 2\n"),
    "a constant of another type": ("def f(x):\n    return x + 1\n", "def f(x):\n    return x + 1.0\n"),
    "True for 1": ("def f(x):\n    return x == 1\n", "def f(x):\n    return x == True\n"),
    "True for 1 in a tuple": ("def f(x):\n    return x, (1, 2)\n", "def f(x):\n    return x, (True, 2)\n"),
    "0.0 for -0.0": ("def f(x):\n    return x, 0.0\n", "def f(x):\n    return x, -0.0\n"),
    "another set": ("def f(x):\n    return x in {1, 2}\n", "def f(x):\n    return x in {1, 3}\n"),
    "a set for a tuple": ("def f(x):\n    return x in {1, 2}\n", "def f(x):\n    return x in (1, 2)\n"),
    "another operator": ("def f(x):\n    return x + 1\n", "def f(x):\n    return x - 1\n"),
    "another global": ("def f(x):\n    return g(x)\n", "def f(x):\n    return h(x)\n"),
    "another attribute": ("def f(x):\n    return x.a\n", "def f(x):\n    return x.b\n"),
    "another parameter": ("def f(x):\n    return 1\n", "def f(y):\n    return 1\n"),
    "one more parameter": ("def f(x):\n    y = 1\n    return x\n", "def f(x, y):\n    y = 1\n    return x\n"),
    "by keyword only": ("def f(x, y):\n    return y\n", "def f(x, *, y):\n    return y\n"),
    "any more": ("def f(x, y):\n    return y\n", "def f(x, *y):\n    return y\n"),
    "any more by keyword": ("def f(x, *y):\n    return y\n", "def f(x, **y):\n    return y\n"),
    "a coroutine": ("def f(x):\n    return x\n", "async def f(x):\n    return x\n"),
    "a document": ('def f(x):\n    """One."""\n', 'def f(x):\n    """Two."""\n'),
    "another name": ("def f(x):\n    return x\n", "def g(x):\n    return x\n"),
    "another line": ("def f(x):\n    return x\n", "\ndef f(x):\n    return x\n"),
    "a function within": (
        "def f(x):\n    return lambda y: x + y\n",
        "def f(x):\n    return lambda y: x - y\n",
    ),
    "a constant of a function within": (
        "def f(x):\n    return lambda: 1\n",
        "def f(x):\n    return lambda: 2\n",
    ),
    "what is no Python": ("def f(x):\n    return x\n", "def f(x:\n    return x\n"),
    "nothing": ("def f(x):\n    return x\n", ""),
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_text_makes_other_code(edit: str) -> None:
    before, after = EDITS[edit]
    code = load(before, "f")
    assert CompiledFile(before, FILE).has(code)
    assert not CompiledFile(after, FILE).has(code)
    name = "g" if edit == "another name" else "f"
    if edit not in ("what is no Python", "nothing"):
        assert not CompiledFile(before, FILE).has(load(after, name)), "nor the other way round"


def test_the_functions_of_a_class_are_those_that_it_holds_itself() -> None:
    class Base:
        def inherited(self) -> None: ...

    def accessor(self: Any, *value: Any) -> None: ...

    def setter(self: Any, value: Any) -> None: ...

    def deleter(self: Any) -> None: ...

    class Child(Base):
        attribute = 3
        builtin = len

        def m(self) -> None: ...

        @staticmethod
        def s() -> None: ...

        @classmethod
        def c(cls) -> None: ...

        static_builtin = staticmethod(len)
        p = property(accessor, setter, deleter)
        read_only = property(accessor)

        @functools.cached_property
        def k(self) -> int:
            return 1

        class Inner:
            def inner(self) -> None: ...

    found = [function.__name__ for function in functions_of_class(Child)]
    assert found == ["m", "s", "c", "accessor", "setter", "deleter", "accessor", "k"]


def test_a_file_was_edited_if_it_was_written_after_the_process_began(tmp_path: Path) -> None:
    path = tmp_path / "lib.py"
    path.write_text("", encoding="utf-8")
    assert edited_since_start(str(path))
    yesterday = time.time() - 3600 * 24
    os.utime(path, (yesterday, yesterday))
    assert not edited_since_start(str(path))
    assert not edited_since_start(str(path / "archive.zip" / "lib.py"))
    assert not edited_since_start(str(tmp_path / "missing.py"))
