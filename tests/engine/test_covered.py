# SPDX-License-Identifier: Apache-2.0
"""Groups of two catalogs that declare the same: one is applied, the other says by which it is covered."""

from __future__ import annotations

import dataclasses

import pytest

from tests.engine.conftest import Lab
from turbo_hydra.engine.errors import StrictStop


@dataclasses.dataclass(frozen=True)
class Options:
    size: int = 1


@pytest.fixture
def two(lab: Lab) -> Lab:
    lab.write("lib", "def f(x):\n    return 'original'\ndef g(x):\n    return 'original'\n")
    lab.write(
        "new",
        """
        def f(x):
            return "ours"
        def other(x):
            return "other"
        def wrapping(original, options):
            def wrapped(x):
                return [options and options.size, original(x)]
            return wrapped
        """,
    )
    return lab


def reasons(lab: Lab, name: str) -> list[str]:
    return next(entry["reasons"] for entry in lab.engines[-1].report.execution if entry["group"] == f"lab.{name}")


def test_the_later_of_two_that_declare_the_same_is_covered(two: Lab) -> None:
    two.group("first", two.wrap("lib.f", "new.wrapping"), options=Options)
    two.group("second", two.wrap("lib.f", "new.wrapping"), options=Options)
    two.apply(strict=True).strict_stop()
    assert (two.status("first"), two.status("second")) == ("applied", "skipped")
    assert reasons(two, "second") == ["covered by lab.first"]
    assert two.load("lib").f(1) == [1, "original"], "once, not twice"
    assert (two.hits("first"), two.planned is not None and two.planned.execution_order) == ((1, 0), ["lab.first"])
    assert two.engines[-1].report.summary["skipped"] == 1


@pytest.mark.parametrize("larger", ["first", "second"])
def test_a_part_is_covered_by_the_whole_wherever_it_stands(two: Lab, larger: str) -> None:
    for name in ("first", "second"):
        members = [two.replace("lib.f", "new.f")] + ([two.replace("lib.g", "new.f")] if name == larger else [])
        two.group(name, *members)
    two.apply()
    part = "second" if larger == "first" else "first"
    assert (two.status(larger), two.status(part)) == ("applied", "skipped")
    assert reasons(two, part) == [f"covered by lab.{larger}"]
    assert (two.load("lib").f(1), two.load("lib").g(1)) == ("ours", "ours")


def test_of_two_that_cover_a_third_the_first_is_named(two: Lab) -> None:
    two.write("lib", "def f(x):\n    return 0\ndef g(x):\n    return 0\ndef h(x):\n    return 0\n")
    two.group("part", two.replace("lib.f", "new.f"))
    two.group("one", two.replace("lib.f", "new.f"), two.replace("lib.g", "new.f"))
    two.group("two", two.replace("lib.f", "new.f"), two.replace("lib.h", "new.f"))
    assert two.plan().covered == {"lab.part": "lab.one"}


def test_two_names_of_its_class_lead_to_the_change_that_covers(two: Lab) -> None:
    two.write("lib", "class C:\n    def m(self):\n        return 'original'\nalias = C\n")
    two.write("new", "def m(self):\n    return 'ours'\n")
    two.group("first", two.replace("lib.C.m", "new.m"))
    two.group("second", two.replace("lib.alias.m", "new.m"))
    assert two.plan().covered == {"lab.second": "lab.first"}


def test_late_targets_of_one_replacement_are_changes_of_their_own(two: Lab) -> None:
    two.write("later", "def f(x):\n    return 'original'\ndef g(x):\n    return 'original'\n")
    two.group("first", two.replace("later.f", "new.f", late=True))
    two.group("second", two.replace("later.g", "new.f", late=True))
    made = two.apply()
    assert made.plan.covered == {}
    later = two.load("later")
    assert (later.f(1), later.g(1)) == ("ours", "ours")


def test_an_observer_covers_nothing_and_is_not_covered(two: Lab) -> None:
    for name in ("one", "two"):
        two.group(name, two.wrap("lib.f", "new.wrapping", observer=True))
    two.group("ordinary", two.wrap("lib.f", "new.wrapping"))
    made = two.plan()
    assert made.covered == {}
    assert made.execution_order == ["lab.one", "lab.two", "lab.ordinary"]


def test_of_three_each_names_the_one_that_is_applied(two: Lab) -> None:
    for name in ("one", "two", "three"):
        two.group(name, two.replace("lib.f", "new.f"))
    two.group("all", two.replace("lib.f", "new.f"), two.replace("lib.g", "new.f"))
    two.apply()
    assert [reasons(two, name) for name in ("one", "two", "three")] == [["covered by lab.all"]] * 3
    assert two.status("all") == "applied"


@pytest.mark.parametrize("off", ["first", "second"])
def test_with_one_of_them_off_the_other_is_applied(two: Lab, off: str) -> None:
    two.group("first", two.replace("lib.f", "new.f"))
    two.group("second", two.replace("lib.f", "new.f"))
    two.apply(disable=(off,))
    on = "second" if off == "first" else "first"
    assert (two.status(on), reasons(two, off)) == ("applied", ["disabled_by_user"])
    assert two.load("lib").f(1) == "ours"


def test_other_options_are_another_change(two: Lab) -> None:
    two.group("first", two.wrap("lib.f", "new.wrapping"), options=Options)
    two.group("second", two.wrap("lib.f", "new.wrapping"), options=Options)
    made = two.plan(options={"lab.first": {"size": 2}})
    assert made.covered == {}
    assert [item.decision for item in made.groups.values()] == ["block", "block"]


@dataclasses.dataclass(frozen=True)
class Particular(Options):
    size: int = 3


@pytest.mark.parametrize("what", ["kind", "replacement", "condition", "replacement, with particular options"])
def test_what_differs_in_one_respect_is_another_change(two: Lab, what: str) -> None:
    two.write(
        "new",
        """
        def both(*args, **kwargs):
            return (lambda x: "made") if len(args) == 2 else "ours"
        def other(*args, **kwargs):
            return both(*args, **kwargs)
        def always(*args, **kwargs):
            return True
        """,
    )
    first, second = {
        "kind": (two.replace("lib.f", "new.both"), two.wrap("lib.f", "new.both")),
        "replacement": (two.replace("lib.f", "new.both"), two.replace("lib.f", "new.other")),
        "condition": (
            two.replace("lib.f", "new.both"),
            two.replace("lib.f", "new.both", runtime_condition="new.always"),
        ),
        "replacement, with particular options": (two.wrap("lib.f", "new.both"), two.wrap("lib.f", "new.other")),
    }[what]
    options = (Options, Particular) if "options" in what else (None, None)
    for name, member, kind in (("first", first, options[0]), ("second", second, options[1])):
        two.group(name, member, options=kind)
    made = two.plan()
    assert made.covered == {}
    assert [item.reasons for item in made.groups.values()] == [["conflict"], ["conflict"]]


@pytest.mark.parametrize("first", ["general", "particular"])
def test_options_that_derive_from_anothers_are_the_more_particular_and_cover_it(two: Lab, first: str) -> None:
    kinds = {"general": Options, "particular": Particular}
    for name in (first, *(set(kinds) - {first})):
        two.group(name, two.wrap("lib.f", "new.wrapping"), options=kinds[name])
    two.apply(options={"lab.general": {"size": 2}})
    assert (two.status("general"), two.status("particular")) == ("skipped", "applied")
    assert reasons(two, "general") == ["covered by lab.particular"]
    assert two.load("lib").f(1) == [3, "original"]


def test_a_third_that_wants_the_same_target_conflicts_with_all_of_them(two: Lab) -> None:
    two.group("general", two.wrap("lib.f", "new.wrapping"), options=Options)
    two.group("particular", two.wrap("lib.f", "new.wrapping"), options=Particular)
    two.group("third", two.replace("lib.f", "new.other"))
    made = two.plan()
    assert {id: item.decision for id, item in made.groups.items()} == dict.fromkeys(made.groups, "block")
    assert [two.codes(name) for name in ("general", "particular", "third")] == [["conflict"]] * 3, "once each"


def test_what_depends_on_a_covered_group_is_applied(two: Lab) -> None:
    two.group("first", two.replace("lib.f", "new.f"))
    two.group("second", two.replace("lib.f", "new.f"))
    two.group("needing", two.replace("lib.g", "new.f"), depends_on=("second",))
    two.apply()
    assert (two.status("second"), two.status("needing")) == ("skipped", "applied")


def test_a_covered_group_is_applied_where_the_covering_one_is_blocked(two: Lab) -> None:
    two.group("first", two.replace("lib.f", "new.f"), two.replace("lib.g", "new.missing"))
    two.group("second", two.replace("lib.f", "new.f"))
    two.apply()
    assert (two.status("first"), two.status("second")) == ("blocked", "applied")
    assert two.load("lib").f(1) == "ours"


def test_a_covered_group_is_applied_where_the_covering_one_is_rolled_back(two: Lab) -> None:
    two.write("lib", "class Table(dict):\n    pass\ndef f(x):\n    return 'original'\nTABLE = Table(g=lambda x: 1)\n")
    lib = two.load("lib")
    two.group("first", two.replace("lib.f", "new.f"), two.replace("lib.TABLE.g", "new.f"))
    two.group("second", two.replace("lib.f", "new.f"))
    two.record("lib.f", "lib.TABLE.g")
    engine = two.engine(force=("*",))

    def refuse(self: object, key: str, value: object) -> None:
        raise RuntimeError("refused")

    lib.Table.__setitem__ = refuse
    engine.apply()
    assert (two.status("first"), two.status("second")) == ("rolled_back", "applied")
    assert reasons(two, "second") == []
    assert lib.f(1) == "ours"
    assert engine.undo() == []
    assert lib.f(1) == "original"


@pytest.mark.parametrize("part", ["before the whole", "after it"])
def test_a_late_target_is_taken_over_too(two: Lab, part: str) -> None:
    two.write("later", "def f(x):\n    return 'original'\ndef g(x):\n    return 'changed since'\n")
    whole = (two.replace("later.f", "new.f", late=True), two.replace("later.g", "new.f", late=True))
    if part == "after it":
        two.group("first", *whole)
    two.group("second", two.replace("later.f", "new.f", late=True))
    if part == "before the whole":
        two.group("first", *whole)
    two.record()
    two.evidence[two.path("later.g")] = two.evidence[two.path("later.f")]
    two.apply()
    assert (two.status("second"), reasons(two, "second")) == ("skipped", ["covered by lab.first"])
    assert two.load("later").f(1) == "ours"
    assert (two.status("first"), two.status("second")) == ("rolled_back", "applied")


def test_what_another_group_still_covers_stays_covered(two: Lab) -> None:
    two.write("later", "def f(x):\n    return 'original'\n")
    two.group("first", two.replace("later.f", "new.f", late=True), two.replace("lib.f", "new.f"))
    two.group("part", two.replace("lib.f", "new.f"))
    two.group("second", two.replace("lib.g", "new.f"))
    two.group("same", two.replace("lib.g", "new.f"))
    two.record()
    two.write("later", "def f(x):\n    return 'changed since'\n")
    two.apply()
    two.load("later")
    statuses = [two.status(name) for name in ("first", "part", "second", "same")]
    assert statuses == ["rolled_back", "applied", "applied", "skipped"]
    assert reasons(two, "same") == ["covered by lab.second"]


TABLE = """
class Table(dict):
    def __setitem__(self, key, value):
        if key == REFUSED:
            raise RuntimeError("refused")
        super().__setitem__(key, value)

def f(x):
    return "original"

def h(x):
    return "original"

TABLE = Table(g=lambda x: "original", later=lambda x: "original")
"""


@pytest.mark.parametrize("refused", ["g", "later"])
def test_what_depends_on_a_covered_group_goes_where_both_come_to_nothing(two: Lab, refused: str) -> None:
    two.write("lib", TABLE.replace("REFUSED", repr(refused)))
    two.group("part", two.replace("lib.TABLE.g", "new.f"))
    two.group("needing", two.replace("lib.h", "new.f"), depends_on=("part",))
    two.group("further", two.replace("lib.f", "new.f"), depends_on=("needing",))
    two.group("whole", two.replace("lib.TABLE.g", "new.f"), two.replace("lib.TABLE.later", "new.f"))
    engine = two.apply(force=("*",))
    assert engine.plan.groups["lab.needing"].decision == "apply"
    statuses = {id.removeprefix("lab."): item.status for id, item in engine.outcomes.items()}
    lib = two.load("lib")
    if refused == "g":
        assert statuses == dict.fromkeys(("part", "needing", "further", "whole"), "rolled_back")
        assert reasons(two, "needing") == reasons(two, "further") == ["dependency_rolled_back"]
        assert (lib.h(1), lib.f(1), lib.TABLE["g"](1)) == ("original", "original", "original")
    else:
        assert statuses == {"part": "applied", "needing": "applied", "further": "applied", "whole": "rolled_back"}
        assert (lib.h(1), lib.f(1), lib.TABLE["g"](1)) == ("ours", "ours", "ours")
        assert reasons(two, "needing") == []
        assert engine.plan.groups["lab.part"].decision == "apply"
        assert engine.plan.covered == {}
    assert engine.undo() == []
    assert (lib.h(1), lib.f(1), lib.TABLE["g"](1)) == ("original", "original", "original")


@pytest.mark.parametrize("refused", ["g", "later"])
def test_what_depends_on_a_covered_group_is_applied_where_the_covering_one_came_to_nothing_before(
    two: Lab, refused: str
) -> None:
    two.write("lib", TABLE.replace("REFUSED", repr(refused)))
    two.group("whole", two.replace("lib.TABLE.g", "new.f"), two.replace("lib.TABLE.later", "new.f"))
    two.group("part", two.replace("lib.TABLE.g", "new.f"))
    two.group("needing", two.replace("lib.h", "new.f"), depends_on=("part",))
    engine = two.apply(force=("*",))
    statuses = [two.status(name) for name in ("whole", "part", "needing")]
    lib = two.load("lib")
    if refused == "later":
        assert statuses == ["rolled_back", "applied", "applied"]
        assert (lib.h(1), lib.f(1), lib.TABLE["g"](1)) == ("ours", "original", "ours")
    else:
        assert statuses == ["rolled_back", "rolled_back", "blocked"]
        assert reasons(two, "needing") == ["dependency_blocked"]
    assert engine.undo() == []
    assert (lib.h(1), lib.f(1), lib.TABLE["g"](1)) == ("original", "original", "original")


def test_strict_still_ends_where_the_covering_group_is_blocked_and_so_is_the_other(two: Lab) -> None:
    two.group("first", two.replace("lib.f", "new.missing"))
    two.group("second", two.replace("lib.f", "new.missing"))
    engine = two.apply(strict=True)
    with pytest.raises(StrictStop, match=r"'lab\.first' blocked.*'lab\.second' blocked"):
        engine.strict_stop()
