# SPDX-License-Identifier: Apache-2.0
"""Groups that have some of their changes in common: the first makes them, the others share them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.engine.conftest import Lab

# Refuses what is in REFUSED: what no finished check can foresee.
LIB = """
    import sys, types

    class Guarded(types.ModuleType):
        def __setattr__(self, name, value):
            if name in vars(self)["REFUSED"]:
                raise RuntimeError("sealed")
            super().__setattr__(name, value)

    REFUSED = set()
    sys.modules[__name__].__class__ = Guarded

    def f(x): return "original"
    def g(x): return "original"
    def h(x): return "original"
    def i(x): return "original"
"""
LATE = "def f(x):\n    return 'original'\n"


@pytest.fixture
def both(lab: Lab) -> Lab:
    """The groups `first` and `second` share `lib.f`, and `first` is rolled back once `plugin` is imported."""
    lab.write("lib", LIB)
    lab.write("plugin", LATE)
    lab.write("new", "def f(x):\n    return 'ours'\n")
    lab.write("user", "from .lib import f\n")
    lab.group("first", lab.replace("lib.f", "new.f"), lab.replace("plugin.f", "new.f", late=True))
    lab.group("second", lab.replace("lib.f", "new.f"), lab.replace("lib.g", "new.f"))
    lab.record()
    lab.write("plugin", LATE.replace("original", "changed since"))
    return lab


def results(lab: Lab) -> list[str]:
    lib = lab.load("lib")
    return [lib.f(1), lib.g(1), lib.h(1), lib.i(1)]


def statuses(lab: Lab) -> dict[str, str]:
    return {id.removeprefix("lab."): item.status for id, item in lab.engines[-1].outcomes.items()}


def makers(lab: Lab) -> dict[str, str | None]:
    """By group, who makes the change of its first member for it."""
    return {name: lab.member(name)["shared_with"] for name, status in statuses(lab).items() if status != "skipped"}


def test_a_change_stays_and_is_another_group_s_own_when_the_one_that_made_it_is_rolled_back(both: Lab) -> None:
    both.group("third", both.replace("lib.f", "new.f"), both.replace("lib.h", "new.f"))
    both.record("lib.h")
    user = both.load("user")
    engine = both.apply()
    assert makers(both) == {"first": None, "second": "lab.first", "third": "lab.first"}
    assert both.member("first")["rebound"] == [both.path("user.f")]
    both.load("plugin")
    assert makers(both) == {"first": None, "second": None, "third": "lab.second"}
    assert statuses(both) == {"first": "rolled_back", "second": "applied", "third": "applied"}
    assert (results(both), user.f(1)) == (["ours", "ours", "ours", "original"], "ours")
    assert [both.hits(name) for name in statuses(both)] == [(0, 0), (2, 0), (2, 0)], "of each what it made or shares"
    assert (both.member("second")["rebound"], both.member("third")["rebound"]) == ([both.path("user.f")], [])
    assert engine.undo() == []
    assert (results(both), user.f(1)) == (["original"] * 4, "original")
    assert set(statuses(both).values()) == {"rolled_back"}


def test_what_was_rolled_back_itself_takes_nothing_over(both: Lab) -> None:
    both.write("second", LATE)
    both.group("third", both.replace("lib.f", "new.f"), both.replace("second.f", "new.f", late=True))
    both.record("second.f")
    both.write("second", LATE.replace("original", "changed since"))
    both.apply(disable=("second",))
    assert makers(both)["third"] == "lab.first"
    both.load("second")
    assert (statuses(both)["third"], results(both)[0]) == ("rolled_back", "ours")
    assert (makers(both)["third"], both.member("third")["hits"]) == (None, None), "it shares nothing any more"
    both.load("plugin")
    assert statuses(both) == {"first": "rolled_back", "second": "skipped", "third": "rolled_back"}
    assert results(both) == ["original"] * 4


def test_what_cannot_be_taken_over_rolls_its_group_back_and_what_depends_on_it(both: Lab) -> None:
    both.group("needing", both.replace("lib.h", "new.f"), depends_on=("second",))
    both.record("lib.h")
    engine = both.apply()
    lib = both.load("lib")
    original = engine.outcomes["lab.first"].transaction.writes[0].before

    class Once(set[str]):
        """Refuses `f` from when it was put back."""

        def __contains__(self, name: object) -> bool:
            return name == "f" and lib.f is original

    vars(lib)["REFUSED"] = Once()
    both.load("plugin")
    vars(lib)["REFUSED"] = set()
    assert statuses(both) == {"first": "rolled_back", "second": "rolled_back", "needing": "rolled_back"}
    assert engine.outcomes["lab.second"].error == "RuntimeError: sealed"
    assert results(both) == ["original"] * 4


@pytest.mark.parametrize("taken", ["f", "g", "h"])
def test_groups_that_share_a_change_are_left_alone_and_taken_back_together(lab: Lab, taken: str) -> None:
    lab.write("lib", LIB)
    lab.write("new", "def f(x):\n    return 'ours'\n")
    lab.group("first", lab.replace("lib.f", "new.f"), lab.replace("lib.h", "new.f"))
    lab.group("second", lab.replace("lib.f", "new.f"), lab.replace("lib.g", "new.f"))
    lab.group("other", lab.replace("lib.i", "new.f"))
    engine = lab.apply()
    lib: Any = lab.load("lib")
    ours = getattr(lib, taken)
    setattr(lib, taken, lambda x: ours(x))
    left = engine.undo()
    assert len(left) == 2
    assert all(lab.path(f"lib.{taken}") in sentence for sentence in left)
    assert statuses(lab) == {"first": "blocked", "second": "blocked", "other": "rolled_back"}
    assert results(lab) == ["ours", "ours", "ours", "original"]
    assert len(engine.undo()) == 2, "as long as somebody else stands there"
    setattr(lib, taken, ours)
    assert engine.undo() == []
    assert set(statuses(lab).values()) == {"rolled_back"}
    assert results(lab) == ["original"] * 4


@pytest.mark.parametrize("taken", [None, "f", "g", "h", "i"])
def test_a_group_all_of_whose_changes_others_make_goes_with_them(lab: Lab, taken: str | None) -> None:
    lab.write("lib", LIB)
    lab.write("new", "def f(x):\n    return 'ours'\n")
    for name, targets in (("first", "fh"), ("second", "gi"), ("third", "fg")):
        lab.group(name, *(lab.replace(f"lib.{target}", "new.f") for target in targets))
    engine = lab.apply()
    assert engine.outcomes["lab.third"].transaction.writes == []
    lib: Any = lab.load("lib")
    ours = getattr(lib, taken or "f")
    if taken:
        setattr(lib, taken, lambda x: ours(x))
    assert len(engine.undo()) == (3 if taken else 0)
    assert set(statuses(lab).values()) == {"blocked" if taken else "rolled_back"}
    assert results(lab) == ["ours" if taken else "original"] * 4
    if taken:
        setattr(lib, taken, ours)
        assert engine.undo() == []
        assert set(statuses(lab).values()) == {"rolled_back"}
        assert results(lab) == ["original"] * 4


@pytest.mark.parametrize(("refused", "failed"), [("f", {"first", "second"}), ("g", {"first"}), ("h", {"second"})])
def test_a_shared_change_that_its_owner_will_not_take_back_fails_all_that_share_it(
    lab: Lab, refused: str, failed: set[str]
) -> None:
    lab.write("lib", LIB)
    lab.write("new", "def f(x):\n    return 'ours'\n")
    for name, targets in (("first", "fgi"), ("second", "fhi")):
        lab.group(name, *(lab.replace(f"lib.{target}", "new.f") for target in targets))
    engine = lab.apply()
    lib = lab.load("lib")
    lib.REFUSED.add(refused)
    left = f"'{lab.path(f'lib.{refused}')}' could not be put back: RuntimeError: sealed"
    assert engine.undo() == [left]
    assert {name for name, status in statuses(lab).items() if status == "failed"} == failed
    assert {engine.outcomes[f"lab.{name}"].error for name in failed} == {left}
    assert set(statuses(lab).values()) <= {"failed", "rolled_back"}
    assert results(lab) == ["ours" if name == refused else "original" for name in "fghi"]
