# SPDX-License-Identifier: Apache-2.0
"""Finding a definition in a file: alone, or with all that stand in it; both ways agree on real code."""

from __future__ import annotations

import importlib
import inspect
import io
import linecache
from pathlib import Path

import pytest

from turbo_hydra.engine.definitions import SourceIndex, definition_at

MODULES = [
    "argparse",
    "ast",
    "asyncio.tasks",
    "collections",
    "concurrent.futures.thread",
    "contextlib",
    "dataclasses",
    "email.message",
    "functools",
    "inspect",
    "logging",
    "re",
    "tempfile",
    "textwrap",
    "types",
    "typing",
    "unittest.mock",
]


def text_of(module: str) -> str:
    loaded = importlib.import_module(module)
    assert loaded.__file__ is not None
    return Path(loaded.__file__).read_text(encoding="utf-8")


@pytest.mark.parametrize("module", MODULES)
def test_a_definition_read_alone_is_the_one_that_the_whole_file_has(module: str) -> None:
    text = text_of(module)
    index, lines = SourceIndex(text), io.StringIO(text).readlines()  # str.splitlines would split at form feeds
    compared = 0
    for qualname, nodes in index._by_name.items():
        for found in index.named(qualname):
            alone = definition_at(lines, found.line, qualname.rpartition(".")[2])
            if alone is None:  # read with the whole file then
                continue
            assert (alone.text, alone.line) == (found.text, found.line)
            compared += 1
        assert len(index.named(qualname)) == len(nodes)
    assert compared > 0.9 * sum(map(len, index._by_name.values()))


@pytest.mark.parametrize("module", MODULES)
def test_a_function_s_text_is_what_inspect_says(module: str) -> None:
    loaded = importlib.import_module(module)
    index = SourceIndex(text_of(module))
    for value in vars(loaded).values():
        if inspect.isfunction(value) and value.__code__.co_filename == loaded.__file__:
            found = index.at(value.__code__.co_firstlineno, value.__code__.co_name)
            if found is not None:
                whole = inspect.getsource(value.__code__)
                assert whole.startswith(found.text)
                # inspect takes a comment after the last statement for a part of the function.
                assert all(line.strip()[:1] in ("", "#") for line in whole[len(found.text) :].splitlines())


TEXT = '''\
import x

@one
@two(
    3,
)
def f(a,
      b):
    """A text
at the margin
"""
    return (
1)

def g(): return 1
class C:
    def g(self):
        def g():
            pass
        return g
    if x:
        def h(self): return "if"
    else:
        def h(self): return "else"

try:
    def t(): pass
except E:
    def t(): return 2
'''


def test_names_lines_and_texts() -> None:
    index = SourceIndex(TEXT)
    assert {name: [found.line for found in index.named(name)] for name in index._by_name} == {
        "f": [3],
        "g": [15],
        "C": [16],
        "C.g": [17],
        "C.g.<locals>.g": [18],
        "C.h": [22, 24],
        "t": [27, 29],
    }
    (found,) = index.named("f")
    assert found.text == "\n".join(TEXT.split("\n")[2:13])
    at = index.at(18, "g")
    assert at is not None
    assert at.qualname == "C.g.<locals>.g"
    assert index.at(18, "f") is None
    assert index.at(1, "f") is None
    assert index.named("nothing") == ()


@pytest.mark.parametrize(
    ("line", "name", "text"),
    [
        (3, "f", "\n".join(TEXT.split("\n")[2:13])),
        (15, "g", "def g(): return 1"),
        (18, "g", "        def g():\n            pass"),
        (22, "h", '        def h(self): return "if"'),
        (3, "g", None),
        (7, "f", None),
        (1, "x", None),
        (0, "f", None),
        (99, "f", None),
    ],
)
def test_a_definition_alone(line: int, name: str, text: str | None) -> None:
    found = definition_at(TEXT.splitlines(keepends=True), line, name)
    if found is None or text is None:
        # A definition whose lines alone do not parse is read with the whole file.
        assert text is None or line == 3
    else:
        assert found.text == text


def test_lines_that_linecache_gives_are_understood() -> None:
    file = inspect.getsourcefile(textwrap := importlib.import_module("textwrap"))
    assert file is not None
    lines = linecache.getlines(file)
    code = textwrap.dedent.__code__
    found = definition_at(lines, code.co_firstlineno, "dedent")
    assert found is not None
    assert found.text == inspect.getsource(textwrap.dedent).rstrip("\n")
