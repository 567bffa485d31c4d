# SPDX-License-Identifier: Apache-2.0
"""Carrying a plan out: each group wholly or not at all, and back again exactly."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import pytest

from turbo_hydra.engine.errors import OptimizationRollbackError, TurboHydraError

if TYPE_CHECKING:
    from tests.engine.conftest import Lab

# Modules whose attributes misbehave when they are written: what no finished check can foresee.
LIB = """
    import sys, types

    class Guarded(types.ModuleType):
        def __setattr__(self, name, value):
            error = vars(self)["RAISE"].get(name)
            if error is not None:
                raise error
            hook = vars(self)["HOOK"].get(name)
            super().__setattr__(name, value)
            if hook is not None:
                hook(self)

    RAISE = {}
    HOOK = {}
    sys.modules[__name__].__class__ = Guarded

    def a(x): return "original"
    def b(x): return "original"
    def c(x): return "original"
    def d(x): return "original"

    class Base:
        def m(self): return "original"

    class Child(Base):
        pass
"""
NEW = "def f(x):\n    return 'ours'\ndef m(self):\n    return 'ours'\n"
ORIGINALS = dict.fromkeys("abcd", "original")


@pytest.fixture
def guarded(lab: Lab) -> Lab:
    lab.write("lib", LIB)
    lab.write("new", NEW)
    return lab


def snapshot(lab: Lab) -> list[dict[str, Any]]:
    lib = lab.load("lib")
    return [dict(vars(owner)) for owner in (lib, lib.Base, lib.Child)]


def results(lab: Lab) -> dict[str, str]:
    lib = lab.load("lib")
    return {name: getattr(lib, name)(1) for name in "abcd"}


def test_a_group_is_applied_and_undone_to_the_last_attribute(guarded: Lab) -> None:
    lab = guarded
    lab.group("it", *(lab.replace(f"lib.{name}", "new.f") for name in "abcd"), lab.replace("lib.Child.m", "new.m"))
    lab.record()
    before = snapshot(lab)
    made = lab.apply()
    assert lab.status() == "applied"
    assert results(lab) == dict.fromkeys("abcd", "ours")
    assert (lab.load("lib").Child().m(), lab.load("lib").Base().m()) == ("ours", "original")
    assert made.undo() == []
    assert snapshot(lab) == before
    assert [list(item) for item in snapshot(lab)] == [list(item) for item in before], "in the same order too"
    assert lab.status() == "rolled_back"
    assert made.undo() == [], "undoing twice changes nothing"
    assert snapshot(lab) == before


@pytest.mark.parametrize("error", [RuntimeError("sealed"), AttributeError("sealed"), TypeError("sealed")])
@pytest.mark.parametrize("failing", "abcd")
def test_a_member_that_cannot_be_written_rolls_its_group_back_and_others_go_on(
    guarded: Lab, failing: str, error: Exception
) -> None:
    lab = guarded
    lab.group("it", *(lab.replace(f"lib.{name}", "new.f") for name in "abcd"))
    lab.group("other", lab.replace("lib.Base.m", "new.m"))
    lab.group("child", lab.replace("lib.Child.m", "new.m"), depends_on=("it",))
    lab.record()
    before = snapshot(lab)
    lab.load("lib").RAISE[failing] = error
    made = lab.apply()
    assert lab.status() == "rolled_back"
    assert made.outcomes["lab.it"].error == f"{type(error).__name__}: sealed"
    assert results(lab) == ORIGINALS
    assert (lab.status("other"), lab.status("child")) == ("applied", "blocked")
    assert made.plan.groups["lab.child"].reasons == ["dependency_blocked"]
    assert made.report.summary == {
        "applied": 1,
        "skipped": 0,
        "blocked": 1,
        "failed": 0,
        "rolled_back": 1,
        "not_started": 0,
    }
    made.undo()
    assert snapshot(lab) == before


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)])
@pytest.mark.parametrize("failing", "abcd")
def test_an_interrupt_at_any_member_rolls_its_group_back_and_is_passed_on(
    guarded: Lab, failing: str, error: BaseException
) -> None:
    lab = guarded
    lab.group("first", lab.replace("lib.Base.m", "new.m"))
    lab.group("it", *(lab.replace(f"lib.{name}", "new.f") for name in "abcd"))
    lab.group("last", lab.replace("lib.Child.m", "new.m"))
    lab.record()
    before = snapshot(lab)
    made = lab.engine()
    lab.load("lib").RAISE[failing] = error
    with pytest.raises(type(error)):
        made.apply()
    assert results(lab) == ORIGINALS
    assert [lab.status(name) for name in ("first", "it", "last")] == ["applied", "rolled_back", "not_started"]
    made.undo()
    assert snapshot(lab) == before


def test_a_failed_rollback_ends_everything_with_a_report(guarded: Lab) -> None:
    lab = guarded
    lab.group("off", lab.replace("lib.d", "new.f"))
    lab.group("first", lab.replace("lib.Base.m", "new.m"))
    lab.group("it", lab.replace("lib.a", "new.f"), lab.replace("lib.b", "new.f"))
    lab.group("last", lab.replace("lib.c", "new.f"))
    lab.group("bad", lab.replace("lib.nothing", "new.f"))
    lab.record()
    lib = lab.load("lib")

    def seal(module: Any) -> None:
        vars(module)["RAISE"].update(a=RuntimeError("sealed"), b=RuntimeError("sealed"))

    lib.HOOK["a"] = seal
    made = lab.engine(groups={f"lab.{name}": name != "off" for name in ("off", "first", "it", "last", "bad")})
    with pytest.raises(OptimizationRollbackError) as caught:
        made.apply()
    assert "group 'lab.it' failed (RuntimeError: sealed) and could not be rolled back" in str(caught.value)
    assert lab.path("lib.a") in str(caught.value)
    assert isinstance(caught.value, TurboHydraError)
    report = caught.value.report
    assert report is made.report
    assert {item["group"]: item["status"] for item in report.execution} == {
        "lab.off": "skipped",
        "lab.first": "applied",
        "lab.it": "failed",
        "lab.last": "not_started",
        "lab.bad": "blocked",
    }
    lib.RAISE.clear()
    lib.HOOK.clear()


def test_a_site_that_changed_between_check_and_write_blocks_its_group(guarded: Lab) -> None:
    lab = guarded
    lab.group("it", lab.replace("lib.a", "new.f"), lab.replace("lib.b", "new.f"))
    lab.group("other", lab.replace("lib.c", "new.f"))
    made = lab.engine()
    lib = lab.load("lib")
    foreign = vars(lib)["a"] = lambda x: "foreign"
    made.apply()
    assert (lab.status(), lab.status("other")) == ("blocked", "applied")
    assert made.plan.groups["lab.it"].reasons == ["site.changed"]
    assert lab.path("lib.a") in made.outcomes["lab.it"].error
    assert lib.a is foreign
    assert lib.b(1) == "original"


def test_a_later_member_whose_site_changed_takes_the_earlier_ones_back(guarded: Lab) -> None:
    lab = guarded
    lab.group("it", lab.replace("lib.a", "new.f"), lab.replace("lib.b", "new.f"))
    made = lab.engine()
    lib = lab.load("lib")
    vars(lib)["b"] = foreign = lambda x: "foreign"
    made.apply()
    assert lab.status() in ("rolled_back", "blocked")
    assert (lib.a(1), lib.b) == ("original", foreign)


def test_a_name_that_appeared_on_a_child_since_the_check_is_not_overwritten(guarded: Lab) -> None:
    lab = guarded
    lab.group("it", lab.replace("lib.Child.m", "new.m"))
    made = lab.engine()
    child = lab.load("lib").Child
    child.m = foreign = lambda self: "foreign"
    made.apply()
    assert lab.status() == "blocked"
    assert vars(child)["m"] is foreign


def test_the_status_is_read_off_the_site_after_all_writes(guarded: Lab) -> None:
    lab = guarded
    lab.group("it", lab.replace("lib.a", "new.f"))
    lab.group("other", lab.replace("lib.b", "new.f"))
    lab.record()
    lib = lab.load("lib")

    def overwrite(module: Any) -> None:
        vars(module)["a"] = len

    lib.HOOK["b"] = overwrite
    made = lab.apply()
    assert (lab.status(), lab.status("other")) == ("failed", "applied")
    assert "no longer holds what was written" in made.outcomes["lab.it"].error
    lib.HOOK.clear()


def test_an_owner_that_stores_something_else_fails_its_group(lab: Lab) -> None:
    lab.write(
        "lib",
        """
        class Registry(dict):
            def __setitem__(self, name, value):
                super().__setitem__(name, value if value in ORIGINALS else (value,))
        ORIGINALS = []
        def f(x): return "original"
        ORIGINALS.append(f)
        TABLE = Registry()
        dict.__setitem__(TABLE, "f", f)
        """,
    )
    lab.write("new", NEW)
    lab.group("it", lab.replace("lib.TABLE.f", "new.f"))
    lab.apply()
    assert lab.status() == "rolled_back"
    assert "its owner stored something else" in lab.engines[-1].outcomes["lab.it"].error
    assert lab.load("lib").TABLE["f"] is lab.load("lib").f


# Undo and third parties.


def test_a_foreign_wrapper_on_top_is_left_alone_and_named(guarded: Lab) -> None:
    lab = guarded
    lab.group("it", lab.replace("lib.a", "new.f"), lab.replace("lib.b", "new.f"))
    lab.group("other", lab.replace("lib.c", "new.f"))
    lab.record()
    lib = lab.load("lib")
    made = lab.apply()
    ours, also = lib.a, lib.b

    @functools.wraps(ours)
    def foreign(x: Any) -> Any:
        return ["foreign", ours(x)]

    vars(lib)["a"] = foreign
    (left,) = made.undo()
    assert (lab.status(), lab.status("other")) == ("blocked", "rolled_back")
    assert lab.path("lib.a") in left
    assert "which is not ours to remove" in left
    assert (lib.a, lib.b) == (foreign, also), "nothing of the group was touched"
    assert lib.c(1) == "original"
    # Once the wrapper is gone, the group is taken back.
    vars(lib)["a"] = ours
    assert made.undo() == []
    assert results(lab) == ORIGINALS


def test_applying_again_after_undo_is_as_the_first_time(guarded: Lab) -> None:
    lab = guarded
    lab.group("it", *(lab.replace(f"lib.{name}", "new.f") for name in "abcd"))
    lab.record()
    before = snapshot(lab)
    for _ in range(2):
        made = lab.apply()
        assert lab.status() == "applied"
        assert results(lab) == dict.fromkeys("abcd", "ours")
        assert [lab.hits(index=index) for index in range(4)] == [(1, 0)] * 4
        assert made.undo() == []
        assert snapshot(lab) == before


def test_a_second_engine_sees_the_first_as_a_foreign_wrapper(guarded: Lab) -> None:
    lab = guarded
    lab.group("it", lab.replace("lib.a", "new.f"))
    first = lab.apply()
    assert first.outcomes["lab.it"].status == "applied"
    lab.apply()
    assert lab.status() == "blocked"
    assert lab.codes() == ["evidence.foreign_wrapper"]


# Caches.


def test_a_cache_is_cleared_when_its_function_is_replaced_and_when_it_comes_back(lab: Lab) -> None:
    lab.write(
        "lib",
        """
        import functools
        RATE = [1]
        @functools.lru_cache(maxsize=None)
        def cached(x):
            return x * RATE[0]
        """,
    )
    lab.write("new", "def cached(x):\n    return 'ours'\n")
    lab.group("it", lab.replace("lib.cached", "new.cached"))
    lab.record()
    lib = lab.load("lib")
    original = lib.cached
    assert lib.cached(3) == 3
    made = lab.apply()
    assert original.cache_info().currsize == 0
    assert lib.cached(3) == "ours"
    lib.cached.cache_clear()
    assert original(4) == 4
    lib.RATE[0] = 10
    made.undo()
    assert lib.cached is original
    assert [lib.cached(3), lib.cached(4)] == [30, 40], "no result from before comes back"


# Not counting.


def test_without_counting_the_replacement_itself_stands_at_the_site(guarded: Lab) -> None:
    lab = guarded
    lab.group("it", lab.replace("lib.a", "new.f"))
    lab.apply(count_calls="off")
    assert lab.load("lib").a is lab.load("new").f
    assert lab.member()["hits"] is None


def test_nothing_enabled_changes_no_site(guarded: Lab) -> None:
    lab = guarded
    lab.group("it", *(lab.replace(f"lib.{name}", "new.f") for name in "abcd"))
    lab.record()
    before = snapshot(lab)
    lab.apply(enabled=False)
    assert snapshot(lab) == before
    assert lab.status() == "skipped"


def test_one_member_may_have_many_kinds_beside_it(lab: Lab) -> None:
    lab.write(
        "lib",
        """
        import functools
        def f(x): return "original"
        class C:
            @staticmethod
            def s(x): return "original"
            @classmethod
            def c(cls, x): return ("original", cls.__name__)
            @property
            def p(self): return "original"
            @p.setter
            def p(self, value): self.value = value
            @functools.cached_property
            def k(self): return "original"
        class D(C): pass
        TABLE = {"f": f}
        """,
    )
    lab.write(
        "new",
        """
        def f(x): return "ours"
        def s(x): return "ours"
        def c(cls, x): return ("ours", cls.__name__)
        def p(self): return "ours"
        """,
    )
    lab.group(
        "it",
        lab.replace("lib.f", "new.f", aliases=("lib.TABLE.f",)),
        lab.replace("lib.C.s", "new.s"),
        lab.replace("lib.C.c", "new.c"),
        lab.replace("lib.C.p", "new.p"),
        lab.replace("lib.C.k", "new.p"),
    )
    lab.record()
    lib = lab.load("lib")
    before = [dict(vars(owner)) for owner in (lib, lib.C, lib.D)]
    table = dict(lib.TABLE)
    made = lab.apply()
    assert lab.codes() == []
    item = lib.D()
    item.p = 5
    assert (lib.C.s(1), item.s(1), lib.D.c(1), item.p, item.k, item.k, item.value) == (
        "ours",
        "ours",
        ("ours", "D"),
        "ours",
        "ours",
        "ours",
        5,
    )
    assert lab.hits(index=4) == (1, 0), "a cached property is computed once"
    made.undo()
    assert [dict(vars(owner)) for owner in (lib, lib.C, lib.D)] == before
    assert dict(lib.TABLE) == table
