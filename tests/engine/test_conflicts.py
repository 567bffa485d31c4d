# SPDX-License-Identifier: Apache-2.0
"""Members that cannot both be applied, where classes lie inside classes and functions."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from turbo_hydra.compatibility import before_import, import_alias, optional_import, replace_import

if TYPE_CHECKING:
    from tests.engine.conftest import Lab
    from turbo_hydra.engine.declarations import Member

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
    first, second = (
        f"lab.{group} {nested.path(target)} ({made.groups[f'lab.{group}'].group.members[0].place})"
        for group, target in (("outer", f"lib.{outer}"), ("it", "lib.A.B.C.m"))
    )
    assert conflict.reason == (
        f"{first} and {second}: the first replaces the class that the second changes; switch one off"
    )
    for group in ("outer", "it"):
        assert (nested.decision(group), nested.codes(group)) == ("block", ["conflict"])


def test_an_observer_inside_a_class_that_is_replaced_is_no_conflict(nested: Lab) -> None:
    nested.write("seeing", "def m(original, options):\n    return lambda self: original(self)\n")
    nested.group("outer", nested.replace("lib.A.B.C", "new.C"))
    nested.group("watching", nested.wrap("lib.A.B.C.m", "seeing.m", observer=True))
    assert nested.plan().conflicts == []
    assert [nested.decision(name) for name in ("outer", "watching")] == ["apply", "apply"]


@pytest.mark.parametrize("first", ["watching", "it"])
@pytest.mark.parametrize(("target", "again"), [("A.B.C.m", "A.B.C.m"), ("A.B", "A.B"), ("A.B", "A.B.C.m")])
def test_an_observer_of_what_another_group_changes_is_no_conflict(
    nested: Lab, target: str, again: str, first: str
) -> None:
    nested.write("seeing", "def it(original, options):\n    return original\n")
    for name in (first, *({"watching", "it"} - {first})):
        if name == "it":
            nested.group("it", nested.replace(f"lib.{again}", f"new.{again[-1]}"))
        else:
            nested.group("watching", nested.wrap(f"lib.{target}", "seeing.it", observer=True))
    assert nested.plan().conflicts == []


def test_a_class_of_the_same_name_inside_another_is_no_conflict(nested: Lab) -> None:
    nested.group("outer", nested.replace("lib.A.B", "new.B"))
    nested.group("it", nested.replace("lib.Other.B.m", "new.m"))
    assert nested.plan().conflicts == []


def test_a_class_that_holds_itself_is_in_no_conflict_with_itself(nested: Lab) -> None:
    nested.write("lib", LIB + "\n    A.B.C.own = A.B.C\n")
    nested.group("it", nested.replace("lib.A.B.C.own", "new.C"))
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


@pytest.mark.parametrize("now", ["3", "None", "len", "object()", "{}"])
@pytest.mark.parametrize("target", ["kept.m", "kept.D.m", "kept.D.E.m"])
def test_a_method_whose_class_has_lost_its_name_is_a_target_of_its_own(nested: Lab, target: str, now: str) -> None:
    nested.write(
        "lib",
        LIB
        + f"""
    class Lost:
        def m(self):
            return 1
        class D:
            def m(self):
                return 1
            class E:
                def m(self):
                    return 1
    kept, Lost = Lost, {now}
""",
    )
    nested.group("a", nested.replace(f"lib.{target}", "new.m"))
    nested.group("b", nested.replace("lib.A.B.C.m", "new.m"))
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
    with pytest.raises(dataclasses.FrozenInstanceError):
        conflict.groups = ()  # type: ignore[misc]


@pytest.mark.parametrize("second", [False, True])
@pytest.mark.parametrize("first", [False, True])
def test_wraps_of_one_object_stack_where_both_say_so_and_conflict_otherwise(
    nested: Lab, first: bool, second: bool
) -> None:
    nested.write("wraps", "def a(original, options):\n    return original\ndef b(*both):\n    return both[0]\n")
    nested.group("a", nested.wrap("lib.A.B.C.m", "wraps.a", stack=first))
    nested.group("b", nested.wrap("lib.A.B.C.m", "wraps.b", stack=second))
    expected = [] if first and second else [("lab.a", "lab.b")]
    assert [item.groups for item in nested.plan().conflicts] == expected


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


@pytest.mark.parametrize("name", ["made", "partial", "TABLE.made"])
def test_what_has_no_home_is_one_target_where_it_stands(lab: Lab, name: str) -> None:
    lab.write(
        "lib",
        """
        import functools
        def make():
            return lambda x: 1
        made, partial = make(), functools.partial(make())
        TABLE = {"made": make()}
        """,
    )
    lab.write("new", "def f(x):\n    return 2\ndef g(x):\n    return 3\n")
    lab.group("a", lab.replace(f"lib.{name}", "new.f"))
    lab.group("b", lab.replace(f"lib.{name}", "new.g"))
    assert [item.groups for item in lab.plan(force=("*",)).conflicts] == [("lab.a", "lab.b")]


@pytest.mark.parametrize("said", ["3", "None", "[1]", "('a', 'b')", "'no.such.module'", "'C.m'", "''", "'.'"])
@pytest.mark.parametrize("about", ["__module__", "__qualname__"])
def test_whatever_a_callable_says_of_itself_it_is_a_target(lab: Lab, about: str, said: str) -> None:
    lab.write(
        "lib",
        f"""
        class Call:
            def __init__(self):
                self.__module__, self.__qualname__ = __name__, "f"
                self.{about} = {said}
            def __call__(self, x):
                return "original"
        f, g = Call(), Call()
        """,
    )
    lab.write("new", "def f(x):\n    return 'ours'\ndef g(x):\n    return 'theirs'\n")
    lab.group("a", lab.replace("lib.f", "new.f"))
    lab.group("b", lab.replace("lib.g", "new.g"))
    lab.apply(force=("*",))
    assert lab.planned is not None
    assert lab.planned.conflicts == []
    lib = lab.load("lib")
    assert (lib.f(1), lib.g(1)) == ("ours", "theirs")


# What another group serves.

# The member, and a target that it serves.
SERVED: dict[str, tuple[Callable[[Lab], Member], str]] = {
    "a module": (lambda lab: replace_import(lab.path("lib"), lab.path("other")), "lib.f"),
    "a method in a module": (lambda lab: replace_import(lab.path("lib"), lab.path("other")), "lib.C.m"),
    "a package": (lambda lab: replace_import(lab.package, lab.path("other")), "lib.f"),
    "a text": (lambda lab: replace_import(lab.path("lib"), source=lab.path("other.text")), "lib.f"),
    "a stand-in": (lambda lab: optional_import(lab.path("lib"), ("f",)), "lib.f"),
    "a name": (lambda lab: import_alias(lab.path("lib"), lab.path("other.f"), "f"), "lib.f"),
    "a class by a name": (lambda lab: import_alias(lab.path("lib"), lab.path("other.C"), "C"), "lib.C.m"),
}


@pytest.fixture
def served(lab: Lab) -> Iterator[Lab]:
    text = "def f(x):\n    return x\n\n\nclass C:\n    def m(self):\n        return 1\n"
    for name in ("lib", "library", "other", "elsewhere"):
        lab.write(name, text)
    lab.write(
        "new",
        """
        def f(x):
            return -x
        def m(self):
            return 2
        def run(context):
            pass
        def watch(original, options):
            return original
        """,
    )
    yield lab
    if lab.planned is not None:
        lab.planned.uninstall_imports()


def replacing(lab: Lab, target: str, **settings: Any) -> Member:
    return lab.replace(target, f"new.{target[-1]}", **settings)


@pytest.mark.parametrize("first", ["serving", "it"])
@pytest.mark.parametrize("what", SERVED)
def test_what_another_group_serves_is_in_conflict_with_it(served: Lab, what: str, first: str) -> None:
    make, target = SERVED[what]
    for name in (first, *({"serving", "it"} - {first})):
        served.group(name, make(served) if name == "serving" else replacing(served, target))
    (conflict,) = served.plan().conflicts
    assert (conflict.groups, conflict.targets[1]) == (("lab.serving", "lab.it"), served.path(target))
    assert "the second changes what the first serves; let it depend on the first" in conflict.reason
    assert [served.decision(name) for name in ("serving", "it")] == ["block", "block"]


@pytest.mark.parametrize("what", SERVED)
def test_a_group_that_needs_the_one_that_serves_is_in_no_conflict_with_it(served: Lab, what: str) -> None:
    make, target = SERVED[what]
    served.group("serving", make(served))
    served.group("between", replacing(served, "elsewhere.f"), depends_on=("serving",))
    served.group("it", replacing(served, target), depends_on=("between",))
    assert served.plan().conflicts == []


@pytest.mark.parametrize("what", sorted(set(SERVED) - {"a package"}))
def test_an_observer_and_what_lies_beside_what_is_served_are_in_no_conflict(served: Lab, what: str) -> None:
    make, target = SERVED[what]
    served.group("serving", make(served))
    served.group("beside", replacing(served, target.replace("lib", "library")))
    served.group("watching", served.wrap(target, "new.watch", observer=True))
    assert served.plan().conflicts == []


def test_an_alias_that_another_group_serves_is_in_conflict_with_it(served: Lab) -> None:
    served.write("lib", "from .elsewhere import f\n")
    served.group("serving", replace_import(served.path("lib"), served.path("other")))
    served.group("it", replacing(served, "elsewhere.f", aliases=("lib.f",)))
    assert [item.groups for item in served.plan().conflicts] == [("lab.serving", "lab.it")]


def test_what_runs_before_a_module_serves_nothing_of_it(served: Lab) -> None:
    served.group("before", before_import(served.path("lib"), served.path("new.run")))
    served.group("again", before_import(served.path("lib"), served.path("new.f")))
    served.group("it", replacing(served, "lib.f"))
    assert served.plan().conflicts == []
