# SPDX-License-Identifier: Apache-2.0
"""Carrying a plan out: each group wholly or not at all, and back again exactly."""

from __future__ import annotations

import functools
import json.decoder
from typing import TYPE_CHECKING, Any

import pytest

from turbo_hydra import replace_import
from turbo_hydra.engine.errors import OptimizationRollbackError, StrictStop, TurboHydraError

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
    assert (lab.status(), lab.decision()) == ("rolled_back", "apply")
    assert lab.path("lib.b") in made.outcomes["lab.it"].error
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


def test_what_an_owner_will_not_take_back_is_told_by_undo_and_the_rest_is_taken_back(guarded: Lab) -> None:
    lab = guarded
    lab.group("it", lab.replace("lib.a", "new.f"), lab.replace("lib.b", "new.f"))
    lab.group("other", lab.replace("lib.c", "new.f"))
    lab.record()
    made = lab.apply()
    lab.load("lib").RAISE["a"] = RuntimeError("no more writes")
    (left,) = made.undo()
    assert left == f"'{lab.path('lib.a')}' could not be put back: RuntimeError: no more writes"
    assert (lab.status(), lab.status("other")) == ("failed", "rolled_back")
    assert results(lab) == {**ORIGINALS, "a": "ours"}


def test_a_wrap_that_cannot_be_made_around_another_one_blocks_its_group_with_the_reason(guarded: Lab) -> None:
    lab = guarded
    lab.write(
        "wraps",
        "def one(original, options):\n    return lambda x: original(x) + ' one'\n\n\n"
        "def two(original, options):\n    if hasattr(original, '__wrapped__'):\n        raise ValueError('wrapped')\n"
        "    return lambda x: original(x) + ' two'\n",
    )
    lab.group("first", lab.wrap("lib.a", "wraps.one", stack=True))
    lab.group("second", lab.wrap("lib.a", "wraps.two", stack=True))
    lab.record()
    made = lab.apply()
    assert (lab.status("first"), lab.status("second")) == ("applied", "blocked")
    assert lab.load("lib").a(1) == "original one"
    assert made.plan.groups["lab.second"].reasons == ["replacement.factory"]
    assert "wrapped" in lab.message("second")


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


def test_strict_says_why_of_each_group(guarded: Lab) -> None:
    lab = guarded
    lab.write("narrow", "def f():\n    return 'ours'\n")
    lab.group("it", lab.replace("lib.a", "narrow.f"))
    lab.group("needing", lab.replace("lib.b", "new.f"), depends_on=("it",))
    lab.group("refused", lab.replace("lib.c", "new.f"))
    lab.group("fine", lab.replace("lib.d", "new.f"))
    lab.record()
    lab.load("lib").RAISE["c"] = RuntimeError("sealed")
    made = lab.apply(strict=True)
    with pytest.raises(StrictStop) as caught:
        made.strict_stop()
    narrow = f"the replacement '{lab.path('narrow.f')}' cannot be called like the target"
    assert str(caught.value) == (
        "optimization.strict is set and not every enabled group is applied: "
        f"'lab.it' blocked ({narrow}: the original's parameter 'x' is missing), "
        "'lab.needing' blocked (dependency_blocked), 'lab.refused' rolled_back (RuntimeError: sealed)"
    )


def test_undo_says_nothing_else_of_a_group_that_was_not_applied(guarded: Lab) -> None:
    lab = guarded
    lab.write("aside", "def f(x):\n    return 1\n")
    lab.group("off", lab.replace("lib.a", "new.f"))
    lab.group("it", lab.replace("lib.b", "new.f"))
    lab.group("bad", lab.replace("lib.nothing", "new.f"))
    lab.group("early", replace_import(lab.path("aside"), lab.path("new")))
    lab.group("served", replace_import(lab.path("other"), lab.path("new")))
    lab.group("refused", lab.replace("lib.c", "new.f"))
    lab.record()
    lab.load("aside")
    lab.load("lib").RAISE["c"] = RuntimeError("sealed")
    made = lab.apply(disable=("off",))
    names = ("off", "it", "bad", "early", "served", "refused")
    before = ["skipped", "applied", "blocked", "blocked", "applied", "rolled_back"]
    assert [lab.status(name) for name in names] == before
    assert made.undo() == []
    assert [lab.status(name) for name in names] == [item.replace("applied", "rolled_back") for item in before]


def test_what_depends_on_an_observer_is_blocked_since_those_are_put_on_last(guarded: Lab) -> None:
    lab = guarded
    lab.write("wraps", "def one(original, options):\n    return original\n")
    lab.group("watching", lab.wrap("lib.a", "wraps.one", observer=True))
    lab.group("it", lab.replace("lib.b", "new.f"), depends_on=("watching",))
    made = lab.apply()
    assert (lab.status("watching"), lab.status(), results(lab)["b"]) == ("applied", "blocked", "original")
    assert made.outcomes["lab.it"].error == "a group that it depends on is not applied"


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


@pytest.mark.parametrize("counts", ["auto", "off"])
def test_a_wrap_over_another_one_counts_where_that_one_does_and_an_observer_never(guarded: Lab, counts: str) -> None:
    lab = guarded
    lab.write(
        "wraps", "def one(original, options):\n    return lambda x: original(x) + ' more'\n\n\ntwo = three = one\n"
    )
    lab.group("first", lab.wrap("lib.a", "wraps.one", stack=True))
    lab.group("second", lab.wrap("lib.a", "wraps.two", stack=True))
    lab.group("watching", lab.wrap("lib.a", "wraps.three", observer=True))
    lab.apply(count_calls=counts)
    assert lab.load("lib").a(1) == "original more more more"
    told = [lab.member(name)["hits"] is not None for name in ("first", "second", "watching")]
    assert told == [counts != "off", counts != "off", False]


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


# What is said of a member.

MEMBERS = """
    import functools

    def f(x): return "original"

    class C:
        def m(self, x): return "original"
        @staticmethod
        def s(x): return "original"
        @classmethod
        def c(cls, x): return "original"
        @property
        def p(self): return "original"
        @functools.cached_property
        def k(self): return "original"
        class D:
            def m(self, x): return "original"
        TABLE = {"f": f}

    class Child(C): pass

    TABLE = {"f": f, "deep": {"f": f}}
    OBJECT = C()
    OBJECT.g = f
"""
# Target, its kind, and the line where its original begins.
TARGETS = [
    ("f", "function", 4),
    ("C.m", "method", 7),
    ("C.s", "staticmethod", 8),
    ("C.c", "classmethod", 10),
    ("C.p", "property", 12),
    ("C.k", "cached_property", 14),
    ("C.D.m", "method", 17),
    ("C.TABLE.f", "function", 4),
    ("Child.m", "method", 7),
    ("TABLE.f", "function", 4),
    ("TABLE.deep.f", "function", 4),
    ("OBJECT.g", "function", 4),
]


@pytest.fixture
def kinds(lab: Lab) -> Lab:
    lab.write("sub/", "")
    lab.write("sub.lib", MEMBERS)
    lab.write("other", "")
    lab.write(
        "new",
        """
        def f(x): return "ours"
        def m(self, x): return "ours"
        def s(x): return "ours"
        def c(cls, x): return "ours"
        def p(self): return "ours"
        k, g = p, f
        NUMBER = 3
        def watch(original, options): return original
        """,
    )
    return lab


def new_for(target: str) -> str:
    return "new." + target.rpartition(".")[2]


@pytest.mark.parametrize(("target", "kind", "line"), TARGETS)
def test_the_report_tells_what_a_member_is_and_where_its_original_stands(
    kinds: Lab, target: str, kind: str, line: int
) -> None:
    kinds.group("it", kinds.replace(f"sub.lib.{target}", new_for(target)))
    kinds.apply()
    assert kinds.status() == "applied"
    path = kinds.path(f"sub.lib.{target}")
    assert kinds.member() == {
        "target": path,
        "kind": kind,
        "member": "replace",
        "replacement": kinds.path(new_for(target)),
        "place": f"{kinds.folder / kinds.package / 'sub' / 'lib.py'}:{line}",
        "evidence": "source-v1",
        "observer": False,
        "pending": False,
        "shared_with": None,
        "hits": {"replacement": 0, "original": 0, "traced": False, "reasons": {}},
        "shadow": None,
        "rebound": kinds.member()["rebound"],
        "stale_holders": kinds.member()["stale_holders"],
    }
    checks = [(item.code, item.status, item.actual) for item in kinds.checks().values() if item.target == path]
    source = kinds.evidence[path][0].source
    assert checks == [("target.resolved", "pass", kind), ("evidence", "pass", source)]


@pytest.mark.parametrize("loaded", ["nothing", "another module", "the module"])
@pytest.mark.parametrize("target", [target for target, _, _ in TARGETS])
def test_a_warning_says_that_the_target_s_module_was_imported_before(kinds: Lab, target: str, loaded: str) -> None:
    kinds.group("it", kinds.replace(f"sub.lib.{target}", new_for(target)))
    kinds.group("late", kinds.replace("sub.lib.C.D.m" if target != "C.D.m" else "sub.lib.f", "new.m", late=True))
    kinds.group("watching", kinds.wrap(f"sub.lib.{target}", "new.watch", observer=True))
    kinds.record()
    if loaded != "nothing":
        kinds.load({"another module": "other", "the module": "sub.lib"}[loaded])
    kinds.plan()
    warned = {name for name in ("it", "late", "watching") if "import.timing" in kinds.checks(name)}
    assert warned == ({"it"} if loaded == "the module" else set())
    if warned:
        check = kinds.checks()["import.timing"]
        assert (check.status, check.expected, check.actual) == ("warning", "not imported yet", "imported")
        assert (check.group, check.target, check.place) == (
            "lab.it",
            kinds.path(f"sub.lib.{target}"),
            kinds.planned.groups["lab.it"].members[0].place if kinds.planned else None,
        )
        assert "was imported before apply(); names bound from it may be stale" in check.message
    assert kinds.decision() == "apply"


def test_what_fails_of_a_member_is_where_it_was_declared(kinds: Lab) -> None:
    for name, target, new in (
        ("gone", "sub.lib.gone", "new.f"),
        ("absent", "sub.lib.f", "new.absent"),
        ("fewer", "sub.lib.C.m", "new.f"),
        ("number", "sub.lib.C.c", "new.NUMBER"),
    ):
        kinds.group(name, kinds.replace(target, new))
    kinds.group("other", kinds.replace("sub.lib.C.s", "new.s", aliases=("sub.lib.f",)))
    made = kinds.plan(force=("*",))
    found = {
        name: [item for item in kinds.checks(name).values() if item.status == "fail"]
        for name in ("gone", "absent", "fewer", "number", "other")
    }
    assert {name: [item.code for item in failed] for name, failed in found.items()} == {
        "gone": ["target.missing"],
        "absent": ["replacement.import"],
        "fewer": ["signature"],
        "number": ["replacement.kind"],
        "other": ["alias.identical"],
    }
    for name, (failed,) in found.items():
        member = made.groups[f"lab.{name}"].group.members[0]
        assert (failed.group, failed.target, failed.place) == (f"lab.{name}", member.target, member.place)
        assert failed.forceable is False
    assert (found["gone"][0].expected, found["absent"][0].expected) == (
        kinds.path("sub.lib.gone"),
        kinds.path("new.absent"),
    )
    assert (found["number"][0].expected, found["number"][0].actual) == ("", "")
    assert (found["other"][0].expected, found["other"][0].actual) == (
        kinds.path("sub.lib.C.s"),
        kinds.path("sub.lib.f"),
    )


def test_a_factory_is_asked_once_for_each_original_and_the_plan_has_asked_it(kinds: Lab) -> None:
    kinds.write(
        "making",
        """
        MADE = []
        def one(original, options):
            MADE.append(("one", original))
            return lambda x: original(x) + 1
        def two(original, options):
            MADE.append(("two", original))
            return lambda x: original(x) * 2
        def narrow(original, options):
            MADE.append(("narrow", original))
            return lambda: 0
        """,
    )
    kinds.write("lib", "def f(x):\n    return x\ndef g(x):\n    return x\n")
    kinds.group("a", kinds.wrap("lib.f", "making.one", stack=True))
    kinds.group("b", kinds.wrap("lib.f", "making.two", stack=True))
    kinds.group("wrong", kinds.wrap("lib.g", "making.narrow"))
    engine = kinds.engine()
    lib, made = kinds.load("lib"), kinds.load("making").MADE
    original = lib.f
    assert made == [("one", original), ("two", original), ("narrow", lib.g)]
    engine.apply()
    (name, below), *more = made[3:]
    assert (name, more) == ("two", []), "over another it is made anew, and nothing else is"
    assert below is not original
    assert (lib.f(3), kinds.hits("a"), kinds.hits("b")) == (8, (1, 0), (1, 0))
    assert (kinds.status("wrong"), kinds.codes("wrong")) == ("blocked", ["signature"])


def test_an_alias_is_changed_with_its_target_and_named_by_two_paths_only_once(kinds: Lab) -> None:
    kinds.write("other", "from .sub.lib import f\nfrom .sub import lib\n")
    aliases = ("other.f", "sub.lib.TABLE.f", "sub.lib.OBJECT.g", "other.lib.f")
    kinds.group("it", kinds.replace("sub.lib.f", "new.f", aliases=aliases))
    engine = kinds.apply()
    lib, other = kinds.load("sub.lib"), kinds.load("other")
    assert [item(1) for item in (lib.f, lib.TABLE["f"], lib.OBJECT.g, other.f)] == ["ours"] * 4
    assert kinds.hits() == (4, 0)
    assert engine.undo() == []
    assert [item(1) for item in (lib.f, lib.TABLE["f"], lib.OBJECT.g, other.f)] == ["original"] * 4


@pytest.mark.parametrize("many", [2, 3])
def test_wraps_lie_on_one_another_at_an_alias_as_at_their_target(kinds: Lab, many: int) -> None:
    kinds.write("wraps", "def one(original, options):\n    return lambda x: original(x) + '!'\n\n\ntwo = three = one\n")
    for name in ("one", "two", "three")[:many]:
        kinds.group(name, kinds.wrap("sub.lib.f", f"wraps.{name}", stack=True, aliases=("sub.lib.TABLE.f",)))
    engine = kinds.apply()
    lib = kinds.load("sub.lib")
    assert [lib.f(1), lib.TABLE["f"](1)] == ["original" + "!" * many] * 2
    assert lib.TABLE["f"] is lib.f
    assert engine.undo() == []
    assert [lib.f(1), lib.TABLE["f"](1)] == ["original"] * 2


def test_a_late_member_is_checked_once_it_is_there_and_what_was_said_before_is_not_said_twice(kinds: Lab) -> None:
    kinds.group("it", kinds.replace("sub.lib.f", "new.f", late=True))
    kinds.group("watching", kinds.wrap("sub.lib.C.m", "new.watch", late=True, observer=True))
    kinds.apply(force=("*",), evidence={})
    assert (kinds.codes(), kinds.codes("watching")) == (["evidence.missing"], [])
    check = kinds.checks()["evidence.missing"]
    path = kinds.path("sub.lib.f")
    assert (check.group, check.target, check.forceable) == ("lab.it", path, True)
    assert check.message == f"no evidence was recorded for '{path}'; take it with turbo-opt generate"
    assert [kinds.member()[key] for key in ("pending", "kind", "place", "hits")] == [True, "replace", None, None]
    assert kinds.load("sub.lib").f(1) == "ours"
    assert (kinds.codes(), kinds.member()["evidence"], kinds.member()["pending"]) == (
        ["evidence.missing"],
        "forced",
        False,
    )
    assert [kinds.status(name) for name in ("it", "watching")] == ["applied", "applied"]
    seen = kinds.member("watching")
    assert [seen[key] for key in ("place", "evidence", "observer", "member", "hits")] == [
        None,
        "none",
        True,
        "wrap",
        None,
    ]
    assert kinds.checks()["target.resolved"].status == "pass"


@pytest.mark.parametrize("target", ["f.g", "C.no", "C.D.no", "Child.no", "TABLE.no", "TABLE.f.no", "OBJECT.no", "no.m"])
def test_a_late_target_that_is_not_there_yet_is_waited_for(kinds: Lab, target: str) -> None:
    kinds.group("it", kinds.replace(f"sub.lib.{target}", "new.f", late=True))
    kinds.load("sub.lib")
    kinds.apply(force=("*",), evidence={})
    assert (kinds.member()["pending"], kinds.engines[-1].report.summary["not_started"]) == (True, 1)


@pytest.mark.parametrize("target", [target for target, _, _ in TARGETS])
def test_a_late_target_that_is_there_is_not_waited_for(kinds: Lab, target: str) -> None:
    kinds.group("it", kinds.replace(f"sub.lib.{target}", new_for(target), late=True))
    kinds.record()
    kinds.load("sub.lib")
    kinds.apply()
    assert (kinds.member()["pending"], kinds.status()) == (False, "applied")


def test_a_late_replacement_that_cannot_be_imported_is_told_before_anything_is_written(kinds: Lab) -> None:
    kinds.group("it", kinds.replace("sub.lib.f", "new.absent", late=True))
    kinds.group("asking", kinds.replace("sub.lib.C.s", "new.s", late=True, runtime_condition="new.absent"))
    kinds.apply()
    assert [kinds.codes(name) for name in ("it", "asking")] == [["replacement.import"], ["condition.import"]]
    assert kinds.message() == (
        f"the replacement '{kinds.path('new.absent')}' cannot be imported: "
        + kinds.checks()["replacement.import"].actual
    )
    assert kinds.load("sub.lib").f(1) == "original"


@pytest.mark.parametrize("loaded", [("sub.lib",), ("other",), ()])
def test_the_module_of_a_target_by_another_name_is_the_one_that_defines_its_class(
    kinds: Lab, loaded: tuple[str, ...]
) -> None:
    kinds.write("other", "def __getattr__(name):\n    from .sub import lib\n    return getattr(lib, name)\n")
    kinds.group("it", kinds.replace("other.C.m", "new.m"))
    kinds.record()
    for module in loaded:
        kinds.load(module)
    kinds.plan()
    assert ("import.timing" in kinds.checks()) is ("sub.lib" in loaded)


@pytest.mark.parametrize("late", [False, True])
def test_evidence_that_does_not_hold_is_none_unless_it_is_forced(kinds: Lab, late: bool) -> None:
    for name, target in (("it", "f"), ("forced", "C.m")):
        kinds.group(name, kinds.replace(f"sub.lib.{target}", new_for(target), late=late))
    kinds.record()
    kinds.write("sub.lib", MEMBERS.replace('"original"', '"changed since"'))
    kinds.apply(force=("forced",))
    kinds.load("sub.lib")
    assert [kinds.member(name)["evidence"] for name in ("it", "forced")] == ["none", "forced"]
    assert [kinds.status(name) for name in ("it", "forced")] == ["rolled_back" if late else "blocked", "applied"]


@pytest.mark.parametrize("recorded", [False, True])
def test_a_target_that_leads_elsewhere_is_told_with_what_is_there_and_one_that_is_gone_as_gone(
    kinds: Lab, recorded: bool
) -> None:
    kinds.write("other", "from json import JSONDecoder\n")
    kinds.group("gone", kinds.replace("sub.lib.gone", "new.f"))
    kinds.group("elsewhere", kinds.replace("other.JSONDecoder.decode", "new.m"))
    kinds.record("sub.lib.f")
    (evidence,) = kinds.evidence.values()
    targets = [group.members[0].target for group in kinds.registry.groups.values()]
    made = kinds.plan(evidence=dict.fromkeys(targets, evidence) if recorded else {})
    ((gone,), (elsewhere,)) = (
        [check for check in item.all_checks if check.status == "fail"] for item in made.groups.values()
    )
    assert (gone.code, gone.expected, gone.place) == (
        "target.missing",
        targets[0],
        made.groups["lab.gone"].group.members[0].place,
    )
    assert gone.message == f"'{targets[0]}' does not exist: module '{kinds.path('sub.lib')}' has no 'gone'"
    assert elsewhere.code == "target.foreign_owner"
    assert elsewhere.place is not None
    found = "class 'json.decoder.JSONDecoder'"
    if recorded:
        assert elsewhere.place.file == json.decoder.__file__
        assert elsewhere.message == (
            f"'{targets[1]}' leads to {found} ({elsewhere.place}), which another program has put there"
        )
        assert (elsewhere.expected, elsewhere.actual) == (kinds.path("other.JSONDecoder"), found)
    else:
        assert elsewhere.place == made.groups["lab.elsewhere"].group.members[0].place
        assert elsewhere.message.startswith(f"'{targets[1]}' changes {found} for everyone; name it by its own path")
