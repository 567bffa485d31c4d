# SPDX-License-Identifier: Apache-2.0
"""Static evidence is that of the live object, or the reason why the text does not give it."""

from __future__ import annotations

import importlib
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from turbo_hydra.config.static import Installed, Repository, StaticReader
from turbo_hydra.engine.evidence import LiveReader
from turbo_hydra.engine.targets import resolve

MODULES = {
    "shapes/__init__.py": """
        from .impl import area as area
        from .impl import Circle, Square as Quad
        from .star import *
        from . import lazy
        from .impl import table as renamed
        """,
    "shapes/star.py": """
        def starred(x):
            return x
        def _hidden(x):
            return x
        """,
    "shapes/lazy.py": """
        def __getattr__(name):
            raise AttributeError(name)
        """,
    "shapes/wrapping.py": '''
        import functools
        from functools import wraps

        def plain(function):
            """Returns what it is given."""
            function.marked = True
            return function

        def traced(function):
            @wraps(function)
            def wrapper(*args, **kwargs):
                return function(*args, **kwargs)
            return wrapper

        def updated(function):
            def inner(*args):
                return function(*args)
            functools.update_wrapper(inner, function)
            return inner

        def optional(function=None, flag=True):
            if function is None:
                return functools.partial(optional, flag=flag)
            @functools.wraps(function)
            def inner(*args):
                return function(*args)
            return inner

        class Registry:
            def __init__(self, name):
                self.entries = {}
            def register(self, name=None, force=False, item=None):
                if not isinstance(force, bool):
                    raise TypeError(force)
                if isinstance(name, type):
                    return self.entries.setdefault(name, item)
                if item is not None:
                    self.entries[name] = item
                    return item
                def _register(item):
                    self.entries[name] = item
                    return item
                return _register
            def wrapped(self, function):
                @wraps(function)
                def inner(*args):
                    return function(*args)
                return inner

        REGISTRY = Registry("shapes")

        def reassigned(function):
            function = silent(function)
            return function

        def factory(name):
            def decorate(function):
                @functools.wraps(function)
                def wrapper(*args):
                    return function(*args)
                return wrapper
            return decorate

        def silent(function):
            def hidden(*args):
                return function(*args)
            return hidden

        def either(function):
            @functools.wraps(function)
            def one(*args):
                return function(*args)
            if function.__name__ == "x":
                return function
            return one
        ''',
    "shapes/impl.py": '''
        import contextlib
        import functools
        from typing import TYPE_CHECKING, overload

        from shapes import wrapping
        from shapes.wrapping import factory, traced

        if TYPE_CHECKING:
            from somewhere import area

        @overload
        def area(x: int) -> int: ...
        @overload
        def area(x: str) -> str: ...
        def area(x):
            """Doc, \\u00e9 and \\f form feed kept."""
            return f"{x!r:>{10}} {x}"

        table = area

        @wrapping.plain
        def plain(x): return x

        @traced
        @wrapping.updated
        def twice(x):
            return x

        @wrapping.optional
        def optional(x):
            return x

        @factory("name")
        def made(x):
            return x

        @wrapping.REGISTRY.register()
        def registered(x):
            return x

        @wrapping.REGISTRY.wrapped
        def held(x):
            return x

        @wrapping.reassigned
        def reassigned(x):
            return x

        @functools.lru_cache(maxsize=None)
        def cached(x):
            return x

        @contextlib.contextmanager
        def context():
            yield

        @wrapping.silent
        def silent(x):
            return x

        @wrapping.either
        def either(x):
            return x

        class Base:
            LIMIT = 3
            def inherited(self):
                return 1
            @staticmethod
            def static(x):
                return x
            @classmethod
            def made(cls):
                return cls()
            class Inner:
                def deep(self):
                    return self

        class Left(Base):
            def diamond(self):
                return "left"

        class Right(Base):
            def diamond(self):
                return "right"
            def inherited(self):
                return 2

        class Circle(Left, Right):
            @property
            def radius(self):
                return 1
            @radius.setter
            def radius(self, value):
                pass
            @radius.deleter
            def radius(self):
                pass
            @functools.cached_property
            def perimeter(self):
                return 6
            @traced
            def wrapped(self):
                return 0
            alias = wrapped

        @wrapping.REGISTRY.register("square")
        class Square(Base):
            @traced
            def corners(self):
                return 4

        def _late(self):
            return 4

        Square.assigned = _late
        bound = Circle.made

        try:
            import there_is_no_such_module
        except ImportError:
            def branching(x):
                return x
        else:
            def branching(x):
                return x + 1

        lambda_made = lambda x: x
        computed = functools.partial(area, 1)
        del_me = 1
        del del_me
        ''',
}
SEEN = [
    "shapes.area",
    "shapes.impl.area",
    "shapes.renamed",
    "shapes.impl.table",
    "shapes.starred",
    "shapes.impl.plain",
    "shapes.impl.twice",
    "shapes.impl.optional",
    "shapes.impl.made",
    "shapes.impl.registered",
    "shapes.impl.bound",
    "shapes.impl.held",
    "shapes.Quad.corners",
    "shapes.impl.cached",
    "shapes.impl.context",
    "shapes.Circle",
    "shapes.Circle.radius",
    "shapes.Circle.perimeter",
    "shapes.Circle.wrapped",
    "shapes.Circle.alias",
    "shapes.Circle.diamond",
    "shapes.Circle.inherited",
    "shapes.Circle.static",
    "shapes.Circle.made",
    "shapes.Circle.Inner.deep",
    "shapes.Quad.inherited",
    "shapes.Quad.Inner",
]
UNSEEN = {
    "shapes.impl.branching": "which one runs is not in the text",
    "shapes.impl.lambda_made": "by an expression: lambda",
    "shapes.impl.computed": "by an expression: functools.partial",
    "shapes.Quad.assigned": "assigns 'Square.assigned' after the class body",
    "shapes.lazy.anything": "on demand",
    "shapes.Circle.LIMIT": "by an expression: 3",
}
ABSENT = ["shapes.nothing", "shapes._hidden", "shapes.Circle.nothing", "shapes.impl.del_me", "nowhere.at_all"]


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    root = tmp_path_factory.mktemp("repository")
    for name, text in MODULES.items():
        path = root / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(textwrap.dedent(text).lstrip(), encoding="utf-8")
    sys.path.insert(0, str(root))
    importlib.invalidate_caches()
    yield root
    sys.path.remove(str(root))
    for name in [name for name in sys.modules if name.partition(".")[0] == "shapes"]:
        del sys.modules[name]


@pytest.fixture(scope="module")
def reader(repository: Path) -> StaticReader:
    return StaticReader([Repository(repository, (repository,)), Installed()])


@pytest.mark.parametrize("target", SEEN)
def test_static_and_live_evidence_are_equal(reader: StaticReader, target: str) -> None:
    site = resolve(target, scope="global")
    live = LiveReader().read(site.raw, site.name)
    seen = reader.read(target)
    assert seen.record is not None, seen.reason
    assert (seen.record.source, seen.record.ast, seen.record.chain) == (live.source, live.ast, live.chain)
    assert live.place is not None
    assert live.place.file.endswith(seen.record.file)
    assert (seen.record.dist, seen.record.version) == (None, None)


@pytest.mark.parametrize("target", ["shapes.impl.silent", "shapes.impl.either", "shapes.impl.reassigned"])
def test_layers_that_the_text_does_not_show_are_unseen_and_the_rest_is_equal(reader: StaticReader, target: str) -> None:
    site = resolve(target)
    live = LiveReader().read(site.raw, site.name)
    seen = reader.read(target).record
    assert seen is not None
    assert (seen.source, seen.ast, seen.chain) == (live.source, live.ast, None)
    assert live.chain


@pytest.mark.parametrize(("target", "reason"), UNSEEN.items())
def test_what_the_text_does_not_tell_is_said(reader: StaticReader, target: str, reason: str) -> None:
    seen = reader.read(target)
    assert seen.record is None
    assert not seen.missing
    assert reason in seen.reason


@pytest.mark.parametrize("target", ABSENT)
def test_what_is_not_there_is_told_apart_from_what_is_out_of_sight(reader: StaticReader, target: str) -> None:
    seen = reader.read(target)
    assert seen.record is None
    assert seen.missing, seen.reason


def test_no_line_of_the_code_is_executed(tmp_path: Path) -> None:
    mark = tmp_path / "executed"
    plant = f"import pathlib\npathlib.Path({str(mark)!r}).touch()\n"
    package = tmp_path / "planted"
    package.mkdir()
    (package / "__init__.py").write_text(plant + "from .deep import f\n", encoding="utf-8")
    (package / "deep.py").write_text(plant + "def f(x=print('no')): return x\n", encoding="utf-8")
    (tmp_path / "sitecustomize.py").write_text(plant, encoding="utf-8")
    seen = StaticReader([Repository(tmp_path, (tmp_path,))]).read("planted.f")
    assert seen.record is not None
    assert not mark.exists()


def test_the_script_is_the_main_module(tmp_path: Path) -> None:
    script = tmp_path / "scripts" / "train.py"
    script.parent.mkdir()
    script.write_text("import os\n\ndef step(x):\n    return x\n", encoding="utf-8")
    seen = StaticReader([Repository(tmp_path, (script.parent,), script)]).read("__main__.step")
    assert seen.record is not None
    assert seen.place == "scripts/train.py:3"
    assert StaticReader([Repository(tmp_path, (tmp_path,))]).read("__main__.step").missing


def test_a_file_that_cannot_be_parsed_is_a_reason(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("def f(:\n", encoding="utf-8")
    seen = StaticReader([Repository(tmp_path, (tmp_path,))]).read("broken.f")
    assert "broken.py cannot be parsed by this Python" in seen.reason
    assert "line 1" in seen.reason
