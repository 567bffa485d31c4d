# SPDX-License-Identifier: Apache-2.0
"""Another program changes the same objects: before us, and after."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.engine.conftest import Lab


@pytest.fixture
def two(make_lab: Callable[[], Lab]) -> tuple[Lab, Lab]:
    """A library with groups on it, and another program's package."""
    lab, other = make_lab(), make_lab()
    lab.write("lib", "class Norm:\n    def run(self, x):\n        return x * 2\n\n\ndef f(x):\n    return x * 2\n")
    lab.write("new", "def run(self, x):\n    return x * 10\n\n\ndef f(x):\n    return x * 10\n")
    other.write(
        "theirs",
        "class Base:\n    def run(self, x):\n        return x * 3\n\n\nclass Norm(Base):\n    pass\n\n\n"
        "def f(x):\n    return x * 3\n",
    )
    lab.group("method", lab.replace("lib.Norm.run", "new.run"))
    lab.group("function", lab.replace("lib.f", "new.f"))
    lab.record()
    return lab, other


def entry(lab: Lab, name: str) -> dict[str, Any]:
    return next(item for item in lab.engines[-1].report.execution if item["group"] == f"lab.{name}")


def test_a_class_that_another_program_has_put_there_blocks_with_its_name_file_and_line(two: tuple[Lab, Lab]) -> None:
    lab, other = two
    lab.load("lib").Norm = other.load("theirs").Norm
    lab.apply()
    assert (lab.status("method"), lab.codes("method")) == ("blocked", ["target.foreign_owner"])
    file = other.folder / other.package / "theirs.py"
    assert lab.message("method") == (
        f"'{lab.path('lib.Norm.run')}' leads to class '{other.path('theirs.Norm')}' ({file}:6), "
        "which another program has put there"
    )
    assert lab.get("lib.Norm")().run(1) == 3


@pytest.mark.parametrize("late", [False, True])
def test_what_another_program_has_put_there_is_found_by_late_groups_too(
    make_lab: Callable[[], Lab], late: bool
) -> None:
    lab, other = make_lab(), make_lab()
    lab.write("lib", "class Norm:\n    def run(self, x):\n        return x * 2\n")
    lab.write("new", "def run(self, x):\n    return x * 10\n")
    other.write("theirs", "class Base:\n    def run(self, x):\n        return x * 3\n\n\nclass Norm(Base):\n    pass\n")
    lab.group("it", lab.replace("lib.Norm.run", "new.run", late=late))
    lab.record()
    lab.load("lib").Norm = other.load("theirs").Norm
    lab.apply()
    assert (lab.status(), lab.codes()) == ("blocked", ["target.foreign_owner"])


def test_a_function_that_another_program_has_put_there_blocks_with_its_file_and_line(two: tuple[Lab, Lab]) -> None:
    lab, other = two
    lab.load("lib").f = other.load("theirs").f
    lab.apply()
    assert lab.codes("function") == ["evidence.changed"]
    assert f"{other.folder / other.package / 'theirs.py'}:10" in lab.message("function")


def test_a_function_that_another_program_exchanges_afterwards_is_lost(two: tuple[Lab, Lab]) -> None:
    lab, other = two
    lab.apply()
    assert (entry(lab, "function")["status"], entry(lab, "function")["error"]) == ("applied", "")
    lab.load("lib").f = other.load("theirs").f
    assert entry(lab, "function")["status"] == "failed"
    assert entry(lab, "function")["error"] == (
        f"'{lab.path('lib.f')}' was written, and '{other.path('theirs')}.f' "
        f"({other.folder / other.package / 'theirs.py'}:10) has been put in its place since"
    )
    assert lab.engines[-1].report.summary["failed"] == 1
    assert entry(lab, "method")["status"] == "applied"


def test_a_class_that_another_program_exchanges_afterwards_takes_its_methods_along(two: tuple[Lab, Lab]) -> None:
    lab, other = two
    lab.apply()
    lab.load("lib").Norm = other.load("theirs").Norm
    assert entry(lab, "method")["status"] == "failed"
    assert entry(lab, "method")["error"] == (
        f"'{lab.path('lib.Norm.run')}' was written, and class '{other.path('theirs.Norm')}' "
        f"({other.folder / other.package / 'theirs.py'}:6) has been put in its owner's place since"
    )


def test_a_name_that_is_removed_is_lost(two: tuple[Lab, Lab]) -> None:
    lab, _ = two
    lab.apply()
    del lab.load("lib").f
    assert entry(lab, "function")["error"] == f"'{lab.path('lib.f')}' was written, and has been removed since"


def test_a_wrapper_that_somebody_puts_around_ours_loses_nothing(two: tuple[Lab, Lab]) -> None:
    lab, _ = two
    lab.apply()
    module = lab.load("lib")
    ours = module.f

    @functools.wraps(ours)
    def around(x: int) -> int:
        return int(ours(x)) + 1

    module.f = around
    assert module.f(1) == 11
    assert entry(lab, "function")["status"] == "applied"


def test_groups_that_lie_on_one_another_are_not_lost(make_lab: Callable[[], Lab]) -> None:
    lab = make_lab()
    lab.write("lib", "def f(x):\n    return x\n")
    factory = "def {}(original, options):\n    def f(x):\n        return original(x) {}\n    return f\n\n\n"
    lab.write("new", factory.format("plus", "+ 1") + factory.format("times", "* 2"))
    lab.group("below", lab.wrap("lib.f", "new.plus", stack=True))
    lab.group("above", lab.wrap("lib.f", "new.times", stack=True))
    lab.record()
    lab.apply()
    assert [entry(lab, name)["status"] for name in ("below", "above")] == ["applied", "applied"]


def test_what_was_taken_back_is_not_lost(two: tuple[Lab, Lab]) -> None:
    lab, _ = two
    engine = lab.apply()
    engine.undo()
    assert (entry(lab, "function")["status"], entry(lab, "function")["error"]) == ("rolled_back", "")
