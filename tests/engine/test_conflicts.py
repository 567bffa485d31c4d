# SPDX-License-Identifier: Apache-2.0
"""Members that cannot both be applied, where classes lie inside classes and functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.engine.conftest import Lab

LIB = """
    class A:
        class B:
            class C:
                def m(self):
                    return "original"

    def make():
        class Local:
            def m(self):
                return "original"
        return Local

    Local = make()

    class Other:
        class B:
            def m(self):
                return "original"
"""
NEW = """
    from . import lib

    class A(lib.A):
        pass

    class B(lib.A.B):
        pass

    class C(lib.A.B.C):
        pass

    class Local(lib.Local):
        pass

    def m(self):
        return "ours"
"""


@pytest.fixture
def nested(lab: Lab) -> Lab:
    lab.write("lib", LIB)
    lab.write("new", NEW)
    return lab


@pytest.mark.parametrize("outer", ["A", "A.B", "A.B.C"])
def test_a_class_at_any_depth_around_a_target_conflicts_with_it(nested: Lab, outer: str) -> None:
    nested.group("outer", nested.replace(f"lib.{outer}", f"new.{outer[-1]}"))
    nested.group("it", nested.replace("lib.A.B.C.m", "new.m"))
    made = nested.plan()
    (conflict,) = made.conflicts
    assert conflict.to_dict() == {
        "groups": ["lab.outer", "lab.it"],
        "targets": [nested.path(f"lib.{outer}"), nested.path("lib.A.B.C.m")],
        "reason": conflict.reason,
    }
    assert "the first replaces the class that the second changes; switch one off" in conflict.reason
    for group in ("outer", "it"):
        assert made.groups[f"lab.{group}"].group.members[0].place.file in conflict.reason
        assert (nested.decision(group), nested.codes(group)) == ("block", ["conflict"])


def test_an_observer_inside_a_class_that_is_replaced_is_no_conflict(nested: Lab) -> None:
    nested.write("seeing", "def m(original, options):\n    return lambda self: original(self)\n")
    nested.group("outer", nested.replace("lib.A.B.C", "new.C"))
    nested.group("watching", nested.wrap("lib.A.B.C.m", "seeing.m", observer=True))
    assert nested.plan().conflicts == []
    assert [nested.decision(name) for name in ("outer", "watching")] == ["apply", "apply"]


def test_a_class_of_the_same_name_inside_another_is_no_conflict(nested: Lab) -> None:
    nested.group("outer", nested.replace("lib.A.B", "new.B"))
    nested.group("it", nested.replace("lib.Other.B.m", "new.m"))
    assert nested.plan().conflicts == []


def test_a_class_that_a_function_made_conflicts_with_its_members_alone(nested: Lab) -> None:
    nested.group("outer", nested.replace("lib.Local", "new.Local"))
    nested.group("it", nested.replace("lib.Local.m", "new.m"))
    nested.group("far", nested.replace("lib.A.B.C.m", "new.m"))
    made = nested.plan(force=("outer", "it"))
    assert [item.groups for item in made.conflicts] == [("lab.outer", "lab.it")]
    assert nested.decision("far") == "apply"


@pytest.mark.parametrize("first", ["lib.Hidden.m", "lib.alias.m"])
def test_a_method_by_two_names_of_its_class_is_one_target(nested: Lab, first: str) -> None:
    nested.write("lib", LIB + "\n    class Hidden:\n        def m(self):\n            return 1\n    alias = Hidden\n")
    nested.write("more", "def m(self):\n    return 'theirs'\n")
    second = {"lib.Hidden.m": "lib.alias.m", "lib.alias.m": "lib.Hidden.m"}[first]
    nested.group("a", nested.replace(first, "new.m"))
    nested.group("b", nested.replace(second, "more.m"))
    assert [item.groups for item in nested.plan().conflicts] == [("lab.a", "lab.b")]


def test_a_method_whose_class_has_lost_its_name_is_a_target_of_its_own(nested: Lab) -> None:
    nested.write(
        "lib", LIB + "\n    class Lost:\n        def m(self):\n            return 1\n    kept, Lost = Lost, 3\n"
    )
    nested.group("a", nested.replace("lib.kept.m", "new.m"))
    assert nested.plan(force=("a",)).conflicts == []
    assert nested.decision("a") == "apply"


def test_a_method_borrowed_by_another_class_is_the_target_of_its_home(nested: Lab) -> None:
    nested.write("lib", LIB + "\n    class Borrower:\n        m = A.B.C.m\n")
    nested.write("more", "def m(self):\n    return 'theirs'\n")
    nested.group("a", nested.replace("lib.A.B.C.m", "new.m"))
    nested.group("b", nested.replace("lib.Borrower.m", "more.m"))
    assert [item.groups for item in nested.plan().conflicts] == [("lab.a", "lab.b")]


def test_one_group_that_names_an_object_by_two_paths_is_in_conflict_with_itself(nested: Lab) -> None:
    nested.write("lib", LIB + "\n    alias = A.B.C\n")
    nested.group("it", nested.replace("lib.A.B.C.m", "new.m"), nested.replace("lib.alias.m", "new.m"))
    (conflict,) = nested.plan().conflicts
    assert conflict.groups == ("lab.it",)
    assert conflict.targets == (nested.path("lib.A.B.C.m"), nested.path("lib.alias.m"))


def test_functions_of_one_name_in_two_classes_are_two_targets(nested: Lab) -> None:
    nested.write("more", "def m(self):\n    return 'theirs'\n")
    nested.group("a", nested.replace("lib.A.B.C.m", "new.m"))
    nested.group("b", nested.replace("lib.Other.B.m", "more.m"))
    assert nested.plan().conflicts == []


def test_functions_without_a_home_or_with_another_s_name_are_targets_of_their_own(lab: Lab) -> None:
    lab.write(
        "lib",
        """
        import functools

        def make(said):
            def local(x):
                return said
            return local

        def base(x):
            return x

        def layer(f):
            @functools.wraps(f)
            def inner(x):
                return f(x)
            return inner

        f, g = make(1), make(2)
        h, i = layer(base), layer(base)
        j, k = functools.partial(base), functools.partial(base)
        """,
    )
    lab.write("new", "".join(f"def {name}(x):\n    return '{name}'\n" for name in "fghijk"))
    for name in "fghijk":
        lab.group(name, lab.replace(f"lib.{name}", f"new.{name}"))
    lab.apply(force=("*",))
    assert lab.planned is not None
    assert lab.planned.conflicts == []
    lib = lab.load("lib")
    assert [getattr(lib, name)(1) for name in ("f", "g", "h", "i", "j", "k", "base")] == [*"fghijk", 1]
