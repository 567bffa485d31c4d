# SPDX-License-Identifier: Apache-2.0
"""Type parameters in brackets, for Pythons that do not know them."""

from __future__ import annotations

import ast
import sys
import types
import typing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbo_hydra.catalogs.shared import type_parameters
from turbo_hydra.catalogs.shared.type_parameters import lowered
from turbo_hydra.compatibility import ImportContext

OLD = sys.version_info < (3, 12)


def run(text: str) -> dict[str, Any]:
    """What a module of that text has, after it was lowered."""
    module = types.ModuleType("lowered")
    exec(compile(lowered(text), "lowered.py", "exec", dont_inherit=True), module.__dict__)
    return module.__dict__


@pytest.mark.parametrize(
    ("head", "bases", "parameters"),
    [
        ("class X[T]:", ["Generic"], ["T"]),
        ("class X[T]():", ["Generic"], ["T"]),
        ("class X[T](Base):", ["Base", "Generic"], ["T"]),
        ("class X[T](Base,):", ["Base", "Generic"], ["T"]),
        ("class X[T, U](Base, Other):", ["Base", "Other", "Generic"], ["T", "U"]),
        ("class X[T](Base, metaclass=Meta):", ["Base", "Generic"], ["T"]),
        ("class X[T](metaclass=Meta):", ["Generic"], ["T"]),
        ("class X[T](Base, **{'metaclass': Meta}):", ["Base", "Generic"], ["T"]),
        ("class X[T](Box[T]):", ["Box", "Generic"], ["T"]),
        (
            "class X[\n    T: int,  # a comment\n    U: (str, bytes),\n](\n    Base,\n):",
            ["Base", "Generic"],
            ["T", "U"],
        ),
        ("class X[T = int](Base):", ["Base", "Generic"], ["T"]),
        ("class X[T: dict[str, int] = dict[str, int], **P](Base):", ["Base", "Generic"], ["T", "P"]),
    ],
)
def test_a_class_gets_its_parameters_from_generic(head: str, bases: list[str], parameters: list[str]) -> None:
    text = (
        "import typing\n\n"
        "class Meta(type): pass\nclass Base: pass\nclass Other: pass\n"
        "B = typing.TypeVar('B')\nclass Box(typing.Generic[B]): pass\n\n"
        f"{head}\n    def get(self) -> T:\n        return __import__('sys')._getframe().f_lineno\n"
    )
    found = run(text)["X"]
    assert [base.__name__ for base in found.__bases__] == bases
    assert [parameter.__name__ for parameter in found.__parameters__] == parameters
    assert found().get() == text.splitlines().index("        return __import__('sys')._getframe().f_lineno") + 1
    values = {1: int, 2: (int, [int] if "**" in head else str)}
    assert found[values[len(parameters)]].__origin__ is found
    assert (type(found).__name__ == "Meta") is ("Meta" in head)


@pytest.mark.parametrize(
    ("text", "call", "result"),
    [
        ("import os\ndef f[T](x: T) -> T:\n    return x\n", "f(3)", 3),
        ("import os\ndef f[T: (int, str), *Ts](x: T, *rest: Ts) -> T: return x\n", "f(3)", 3),
        ("import os\nasync def f[T](x: T) -> T: return x\n", "f(3).close()", None),
        ("'''Doc.'''\ndef f[T](x: T) -> T: return x\n", "(f(3), __doc__)", (3, "Doc.")),
        ("# first\ndef f[T](x: T) -> T: return x\n", "f(3)", 3),
        ("\ndef f[T](x: T) -> T: return x\n", "f(3)", 3),
        ("'''Doc.'''\nfrom __future__ import annotations\ndef f[T](x: T): return x\n", "(f(3), __doc__)", (3, "Doc.")),
        ("x = 1\ndef f[T](x: T): return x\n", "f(x)", 1),
        ("import os\nclass A:\n    def f[T](self, x: T) -> T:\n        return x\n", "A().f(3)", 3),
        ("import os\nclass A:\n    class B[T]:\n        x: T\n", "A.B[int].__origin__ is A.B", True),
        ("import os\ndef g():\n    def f[T](x: T) -> T: return x\n    return f\n", "g()(3)", 3),
        ("import os\ntype A = int | str\n", "A == int | str", True),
        ("import os\ntype A[T] = dict[str, T]\n", "A[int] == dict[str, int]", True),
        ("import os\ntype A[\n    T,\n] = (\n    list[T]\n)\nB = A[int]\n", "B == list[int]", True),
        ("type = 3\n", "type", 3),
        ("type = [0]\ntype [0] = 4\n", "type", [4]),
        ("f = [1]\nprint, x = 1, f[0]\n", "x", 1),
        ("def f(x=[1][0]): return x\n", "f()", 1),
        ("import os\nx = '''\nclass X[T]: pass\n'''\n", "'class X[T]' in x", True),
        ("import typing\nT = typing.TypeVar('T')\nclass X[T]: pass\nY = X[T]\n", "Y.__args__ == (T,)", True),
    ],
)
def test_what_runs_after_it(text: str, call: str, result: object) -> None:
    namespace = run(text)
    assert eval(call, namespace) == result
    assert lowered(text).count("\n") == text.count("\n")


def test_bounds_may_name_what_is_defined_further_down() -> None:
    found = run("import os\nclass X[T: Later, U: (Later, int), V: list[Later]]: ...\nclass Later: ...\n")
    first, second, third = found["X"].__parameters__
    assert first.__bound__.__forward_arg__ == "Later"
    assert [item.__forward_arg__ for item in second.__constraints__] == ["Later", "int"]
    assert third.__bound__.__forward_arg__ == "list[Later]"


def test_one_name_with_two_bounds_has_none() -> None:
    found = run("import os\ndef f[T: int](x: T): ...\ndef g[T: str](x: T): ...\n")
    assert found["T"].__bound__ is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import os\nT = 3\nclass X[T]: ...\n", "the type parameter 'T' has the name of something else"),
        ("import os as T\nclass X[T]: ...\n", "the type parameter 'T' has the name of something else"),
        ("import os\nclass T: ...\nclass X[T]: ...\n", "the type parameter 'T' has the name of something else"),
        ("import os\nclass X[T]: ...\nclass Y[**T]: ...\n", "the type parameter 'T' has the name of something else"),
        ("class X[T]: ...\n", "there is no line before the first statement"),
    ],
)
def test_what_cannot_be_lowered_is_refused_with_its_module(text: str, words: str) -> None:
    with pytest.raises(SyntaxError, match="package.module: .*" + words):
        lowered(text, "package.module")


def test_text_without_parameters_is_given_back_as_it_is() -> None:
    text = "def f(x):\n    return x[0]\n\n\nclass A(dict[str, int]):\n    pass\n"
    assert lowered(text) is text


@pytest.mark.skipif(not OLD, reason="newer Pythons read the text themselves")
def test_an_old_python_gets_lowered_text_and_what_is_absent_is_told() -> None:
    context = ImportContext("some.module", None, None)
    served = type_parameters.source("import os\nclass X[T]:\n    pass\n", context)
    assert "class X(_type_parameters.Generic[T]):" in served
    with pytest.raises(ModuleNotFoundError, match=r"some\.module"):
        type_parameters.source(None, context)


@pytest.mark.skipif(OLD, reason="Python 3.12 and newer")
def test_a_new_python_gets_the_text_as_it_is() -> None:
    text = "import os\nclass X[T]:\n    pass\n"
    assert type_parameters.source(text, ImportContext("some.module", None, None)) is text


NAMES = st.sampled_from(["T", "U", "Key", "Value_2"])
LIMITS = st.sampled_from(["", ": int", ": (int, str)", ": 'Later'", ": dict[str, int]", " = int"])
PARAMETERS = st.lists(st.tuples(NAMES, LIMITS), min_size=1, max_size=3, unique_by=lambda item: item[0])
SPACES = st.sampled_from(["", " ", "\n    ", "  # why\n  "])


@st.composite
def definitions(draw: st.DrawFn) -> tuple[str, list[str], str]:
    """The head of a class or function with parameters, their names, and what the head is without them."""
    parameters, space = draw(PARAMETERS), draw(SPACES)
    brackets = f"[{space}" + f",{space}".join(name + limit for name, limit in parameters) + f"{space}]"
    kind = draw(st.sampled_from(["class", "def", "async def"]))
    rest = "(x=1)" if kind != "class" else draw(st.sampled_from(["", "()", "(Base)", "(Base, flag=1)"]))
    return f"{kind} made{brackets}{rest}:", [name for name, _ in parameters], f"{kind} made{rest}:"


@given(definitions(), st.sampled_from(["    ", "        "]), st.integers(0, 3))
def test_lines_stay_and_the_rest_is_what_it_would_be_without(
    head: tuple[str, list[str], str], indent: str, blank: int
) -> None:
    before = "import os\n" + "\n" * blank + "class Base:\n    def __init_subclass__(cls, flag=0): cls.flag = flag\n"
    after = f"\n{indent}y = [1][0]\nlast = 1\n"
    text = before + head[0] + after
    tree = ast.parse(lowered(text))
    assert lowered(text).count("\n") == text.count("\n")
    made, last = tree.body[-2:]
    assert last.lineno == text.count("\n")
    assert made.lineno == before.count("\n") + 1
    plain = ast.parse(before + head[2] + after).body[-2]
    if isinstance(made, ast.ClassDef):
        assert isinstance(plain, ast.ClassDef)
        assert ast.unparse(made.bases.pop()) == f"_type_parameters.Generic[{', '.join(head[1])}]"
    assert ast.dump(made) == ast.dump(plain)
    found = run(text)
    assert all(isinstance(found[name], typing.TypeVar) for name in head[1])
