# SPDX-License-Identifier: Apache-2.0
"""The plan: what is decided about each group, why, and that deciding writes nothing."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator
from textwrap import dedent
from typing import TYPE_CHECKING, Any, Literal, Optional

import pytest

from turbo_hydra import About, CheckContext, CompatibilityResult
from turbo_hydra.compatibility import before_import, replace_import
from turbo_hydra.engine import plan
from turbo_hydra.engine.errors import OptimizationConfigError, StrictStop
from turbo_hydra.engine.evidence import EvidenceRecord

if TYPE_CHECKING:
    from tests.engine.conftest import Lab

LIB = """
    def f(x):
        return "original"

    def g(x):
        return "original"

    def h(x):
        return "original"

    class C:
        def m(self):
            return "original"
"""
NEW = """
    from . import lib

    def f(x):
        return "ours"

    def again(x):
        return "again"

    def narrow():
        return "ours"

    def m(self):
        return "ours"

    class C(lib.C):
        pass

    class Other:
        pass

    def wrapping(original, options):
        def wrapped(x):
            return [options, original(x)]
        return wrapped

    def raising(original, options):
        raise RuntimeError("no kernel")

    def nothing(original, options):
        return None

    def condition(x):
        return True

    def wrong_condition(x, y):
        return True

    NUMBER = 3
"""


@pytest.fixture
def two(lab: Lab) -> Lab:
    lab.write("lib", LIB)
    lab.write("new", NEW)
    return lab


def reasons(lab: Lab, name: str) -> list[str]:
    assert lab.planned is not None
    return lab.planned.groups[f"lab.{name}"].reasons


def decisions(lab: Lab) -> dict[str, tuple[str, list[str]]]:
    assert lab.planned is not None
    return {id.removeprefix("lab."): (item.decision, item.reasons) for id, item in lab.planned.groups.items()}


# Decisions.


def test_a_group_that_fits_is_applied_and_one_that_is_off_is_skipped(two: Lab) -> None:
    two.group("on", two.replace("lib.f", "new.f"))
    two.group("off", two.replace("lib.g", "new.f"))
    two.group("unnamed", two.replace("lib.h", "new.f"))
    made = two.plan(groups={"lab.on": True, "lab.off": False})
    assert decisions(two) == {
        "on": ("apply", []),
        "off": ("skip", ["group_disabled"]),
        "unnamed": ("skip", ["group_disabled"]),
    }
    assert made.execution_order == ["lab.on"]


def test_disabling_leaves_out_a_group_and_what_depends_on_it_to_any_depth(two: Lab) -> None:
    two.group("c", two.replace("lib.h", "new.f"), depends_on=("b",))
    two.group("b", two.replace("lib.g", "new.f"), depends_on=("a",))
    two.group("a", two.replace("lib.f", "new.f"))
    two.group("alone", two.replace("lib.C.m", "new.m"))
    two.plan(disable=("a",))
    assert decisions(two) == {
        "a": ("skip", ["disabled_by_user"]),
        "b": ("skip", ["dependency_disabled"]),
        "c": ("skip", ["dependency_disabled"]),
        "alone": ("apply", []),
    }


def test_only_and_disable_are_globs_and_disable_wins(two: Lab) -> None:
    for name in ("fast_a", "fast_b", "slow"):
        two.group(name, two.replace(f"lib.{'fgh'[len(two.registry.groups)]}", "new.f"))
    two.plan(only=("lab.fast_*",), disable=("*_b",))
    assert {name: decision for name, (decision, _) in decisions(two).items()} == {
        "fast_a": "apply",
        "fast_b": "skip",
        "slow": "skip",
    }


def test_not_enabled_leaves_out_optimizations_and_keeps_compatibility(two: Lab) -> None:
    two.group("fast", two.replace("lib.f", "new.f"))
    two.group("needed", two.replace("lib.g", "new.f"), about=About(why="it would not run", purpose="compatibility"))
    two.plan(enabled=False)
    assert decisions(two) == {"fast": ("skip", ["disabled_by_user"]), "needed": ("apply", [])}
    two.plan(enabled=False, disable=("*",))
    assert {decision for decision, _ in decisions(two).values()} == {"skip"}


def test_nothing_is_resolved_for_a_group_that_is_skipped(two: Lab) -> None:
    two.write("lib", "raise RuntimeError('imported')")
    two.group("it", two.replace("lib.f", "new.f"), two.wrap("lib.g", "new.raising"))
    made = two.plan(groups={})
    assert two.decision() == "skip"
    assert made.groups["lab.it"].all_checks == []
    assert two.path("lib") not in sys.modules


def test_a_dependency_that_nobody_declares_is_no_dependency_that_holds(two: Lab) -> None:
    two.group("it", two.replace("lib.f", "new.f"), depends_on=("nowhere",))
    two.apply()
    assert two.status() == "skipped"
    assert reasons(two, "it") == ["dependency_disabled"]


def test_a_cycle_of_dependencies_blocks_what_lies_on_it_and_what_needs_it(two: Lab) -> None:
    two.group("a", two.replace("lib.f", "new.f"), depends_on=("b",))
    two.group("b", two.replace("lib.g", "new.f"), depends_on=("a",))
    two.group("c", two.replace("lib.h", "new.f"), depends_on=("a",))
    two.group("d", two.replace("lib.C.m", "new.m"))
    two.apply()
    assert {name: decision for name, (decision, _) in decisions(two).items()} == {
        "a": "block",
        "b": "block",
        "c": "block",
        "d": "apply",
    }
    assert reasons(two, "a") == ["dependency.cycle"]
    assert two.status("d") == "applied"


def test_a_cycle_of_groups_that_are_off_blocks_nothing(two: Lab) -> None:
    two.group("a", two.replace("lib.f", "new.f"), depends_on=("b",))
    two.group("b", two.replace("lib.g", "new.f"), depends_on=("a",))
    two.apply(groups={})
    assert decisions(two) == {name: ("skip", ["group_disabled"]) for name in ("a", "b")}


def test_a_blocked_group_blocks_its_dependents_and_nobody_else(two: Lab) -> None:
    two.group("bad", two.replace("lib.nothing", "new.f"))
    two.group("child", two.replace("lib.f", "new.f"), depends_on=("bad",))
    two.group("grandchild", two.replace("lib.g", "new.f"), depends_on=("child",))
    two.group("alone", two.replace("lib.h", "new.f"))
    two.apply(force=("bad", "child", "grandchild"))
    assert decisions(two) == {
        "bad": ("block", ["target.missing"]),
        "child": ("block", ["dependency_blocked"]),
        "grandchild": ("block", ["dependency_blocked"]),
        "alone": ("apply", []),
    }
    assert [two.status(name) for name in ("bad", "child", "grandchild", "alone")] == ["blocked"] * 3 + ["applied"]


# Import groups that depend on another: what is blocked is not in force.


@pytest.fixture
def served(two: Lab) -> Iterator[Lab]:
    two.write("base", "X = 1\n")
    two.write("other", LIB.replace("original", "served"))
    two.write(
        "plain", "def f(x):\n    return x\n\n\ndef faster(x):\n    return x\n\n\ndef m(self):\n    return 'ours'\n"
    )
    yield two
    if two.planned is not None:
        two.planned.uninstall_imports()


@pytest.mark.parametrize("why", ["nothing to serve", "imported before", "a conflict", "cannot be installed", "a cycle"])
def test_an_import_group_whose_dependency_is_blocked_is_not_in_force(served: Lab, why: str) -> None:
    first = replace_import(served.path("base"), served.path("other"))
    if why == "nothing to serve":
        first = replace_import(served.path("base"), served.path("nowhere"))
    elif why == "a conflict":
        served.group("rival", replace_import(served.path("base"), served.path("new")))
    elif why == "cannot be installed":
        first = replace_import(served.path("base"), source=served.path("new.nothing_there"))
    served.group("first", first, **({"depends_on": ("third",)} if why == "a cycle" else {}))
    served.group("second", replace_import(served.path("lib"), served.path("other")), depends_on=("first",))
    served.group("third", served.replace("lib.f", "new.f"), depends_on=("second",))
    served.write("user", "from . import base\nfrom .lib import C\n")
    served.group("user", served.replace("user.C.m", "plain.m"))  # what is imported while the plan is made, too
    served.record("user.C.m")
    served.forget()
    if why == "imported before":
        served.load("base")
    served.apply(evidence=dict(served.evidence), force=("*",))
    assert [served.status(name) for name in ("first", "second", "third")] == ["blocked"] * 3
    assert served.load("lib").f(1) == "original"
    assert served.path("other") not in sys.modules


def test_an_import_group_of_which_one_member_cannot_be_installed_serves_nothing(served: Lab) -> None:
    broken = replace_import(served.path("base"), source=served.path("plain.nothing_there"))
    served.group("it", replace_import(served.path("lib"), served.path("other")), broken)
    served.group("user", served.replace("user.C.m", "plain.m"))
    served.write("user", "from .lib import C\n")
    made = served.apply(force=("user",))
    assert made.plan.execution_order == ["lab.user"]
    assert (served.status(), served.codes()) == ("blocked", ["import.failed"])
    assert decisions(served) == {"it": ("block", ["import.failed"]), "user": ("apply", [])}
    assert "nothing_there" in served.message()
    assert served.load("lib").f(1) == "original"
    assert served.path("other") not in sys.modules


def test_an_interrupt_while_the_plan_is_made_leaves_no_import_group_in_force(served: Lab) -> None:
    served.group("serving", replace_import(served.path("lib"), served.path("other")))
    served.group("it", served.replace("ends.f", "plain.f"))
    served.write("ends", "raise KeyboardInterrupt\n")
    with pytest.raises(KeyboardInterrupt):
        served.plan(evidence={})
    assert served.load("lib").f(1) == "original"


def test_an_import_group_cannot_depend_on_one_that_is_applied_after_it(served: Lab) -> None:
    served.group("first", served.replace("plain.f", "plain.faster"))
    served.group("second", replace_import(served.path("lib"), served.path("other")), depends_on=("first",))
    served.apply(force=("*",))
    assert (served.status("first"), served.status("second")) == ("applied", "blocked")
    assert served.codes("second") == ["dependency.order"]
    assert (
        served.message("second") == "'lab.second' changes imports before 'lab.first' is applied; it cannot depend on it"
    )
    assert served.load("lib").f(1) == "original"


def test_an_import_group_that_depends_on_an_import_group_is_in_force_with_it(served: Lab) -> None:
    served.group("second", replace_import(served.path("lib"), served.path("other")), depends_on=("first",))
    served.group("first", before_import(served.path("lib"), served.path("plain.f")))
    served.apply()
    assert (served.status("first"), served.status("second")) == ("applied", "applied")
    assert served.load("lib").f(1) == "served"


def test_an_import_group_that_may_not_be_compiled_is_not_in_force_beside_one_that_compiles(served: Lab) -> None:
    plain = About(why="it is faster", compile=False)
    served.group("it", replace_import(served.path("lib"), served.path("other")), about=plain)
    served.group("compiling", served.replace("plain.f", "plain.faster"), about=About(why="it compiles", compiles=True))
    served.apply()
    assert (served.status(), reasons(served, "it")) == ("blocked", ["compile.pairing"])
    assert served.load("lib").f(1) == "original"


def test_groups_are_ordered_by_dependency_and_otherwise_as_declared(two: Lab) -> None:
    two.group("late", two.replace("lib.f", "new.f"), depends_on=("z",))
    two.group("b", two.replace("lib.g", "new.f"))
    two.group("z", two.replace("lib.h", "new.f"))
    assert two.plan().execution_order == ["lab.b", "lab.z", "lab.late"]


# Structural failures: never forced.

STRUCTURAL = {
    "a target that is not there": (("replace", "lib.nothing", "new.f"), "target.missing", "has no 'nothing'"),
    "a module": (("replace", "lib.sys", "new.f"), "target.kind", "it is a module"),
    "a replacement that is not there": (
        ("replace", "lib.f", "new.absent"),
        "replacement.import",
        "cannot be imported",
    ),
    "a module of replacements that is not there": (
        ("replace", "lib.f", "nowhere.f"),
        "replacement.import",
        "has no attribute 'nowhere'",
    ),
    "a replacement that is a number": (
        ("replace", "lib.f", "new.NUMBER"),
        "replacement.kind",
        "3, which cannot be called",
    ),
    "a factory that returns nothing": (
        ("wrap", "lib.f", "new.nothing"),
        "replacement.kind",
        "None, which cannot be called",
    ),
    "a factory that raises": (
        ("wrap", "lib.f", "new.raising"),
        "replacement.factory",
        "raised RuntimeError: no kernel",
    ),
    "another signature": (("replace", "lib.f", "new.narrow"), "signature", "the original's parameter 'x' is missing"),
    "a class by another": (("replace", "lib.C", "new.Other"), "target.kind", "by a subclass of it only"),
    "a class by a function": (("replace", "lib.C", "new.f"), "target.kind", "by a subclass of it only"),
}


@pytest.mark.parametrize("case", STRUCTURAL)
def test_a_structural_failure_blocks_and_is_not_forced(two: Lab, case: str) -> None:
    two.write("lib", "import sys\n" + dedent(LIB))
    (kind, target, replacement), code, text = STRUCTURAL[case]
    member = getattr(two, kind)(target, replacement)
    two.group("it", two.replace("lib.h", "new.f"), member)
    lib = two.load("lib")
    before = dict(vars(lib))
    two.record("lib.f", "lib.h", "lib.C")
    two.apply(force=("it",))
    assert two.status() == "blocked"
    assert two.codes() == [code]
    assert text in two.message()
    failed = two.checks()[code]
    assert not failed.forceable
    assert failed.place is not None
    assert failed.place.line > 0
    assert dict(vars(lib)) == before, "no member of a blocked group is written"


@pytest.mark.parametrize(
    ("condition", "code"),
    [("new.nothing_there", "condition.import"), ("new.wrong_condition", "condition.signature")],
)
def test_a_condition_that_cannot_be_asked_blocks(two: Lab, condition: str, code: str) -> None:
    two.group("it", two.replace("lib.f", "new.f", runtime_condition=condition))
    two.apply(force=("it",))
    assert (two.status(), two.codes()) == ("blocked", [code])


def test_a_condition_for_a_class_is_refused_rather_than_ignored(two: Lab) -> None:
    two.group("it", two.replace("lib.C", "new.C", runtime_condition="new.condition"))
    two.record()
    two.load("lib")
    two.apply()
    assert (two.status(), two.codes()) == ("blocked", ["condition.class"])


def test_a_class_with_live_subclasses_is_refused_with_their_names(two: Lab) -> None:
    two.group("it", two.replace("lib.C", "new.C"))
    two.record()
    two.write("user", "from .lib import C\nclass Sub(C):\n    pass\n")
    two.load("user")
    two.apply(force=("it",))
    assert (two.status(), two.codes()) == ("blocked", ["target.subclasses"])
    assert f"{two.package}.user.Sub" in two.message()


def test_a_class_without_subclasses_gives_way_to_its_subclass(two: Lab) -> None:
    two.group("it", two.replace("lib.C", "new.C"))
    two.apply()
    assert two.status() == "applied"
    assert two.load("lib").C is two.load("new").C


# Evidence-like failures: forced, and said so.


def test_missing_evidence_blocks_and_is_forced(two: Lab) -> None:
    two.group("it", two.replace("lib.f", "new.f"))
    two.apply(evidence={})
    assert (two.status(), two.codes()) == ("blocked", ["evidence.missing"])
    two.apply(evidence={}, force=("it",))
    assert two.status() == "applied"
    assert reasons(two, "it") == ["forced:evidence.missing"]
    assert two.member()["evidence"] == "forced"


def test_a_changed_original_blocks_its_group_and_no_other(two: Lab) -> None:
    two.group("it", two.replace("lib.f", "new.f"))
    two.group("other", two.replace("lib.g", "new.f"))
    two.record()
    path = two.write("lib", LIB.replace('return "original"', 'return "the original"', 1))
    two.apply()
    assert (two.status(), two.status("other")) == ("blocked", "applied")
    check = two.checks()["evidence.changed"]
    assert check.place is not None
    assert (check.place.file, check.place.line) == (str(path), 2)
    recorded = two.evidence[two.path("lib.f")][0]
    assert check.expected == f"{recorded.source} {recorded.ast}"
    assert check.actual.startswith("source-v1:")
    assert check.actual != check.expected
    two.apply(force=("it",))
    assert two.load("lib").f(1) == "ours"


def test_a_version_nobody_recorded_blocks_and_is_forced(two: Lab) -> None:
    two.group("it", two.replace("lib.f", "new.f"))
    record = EvidenceRecord("packaging", "0.0.1", "source-v1:a", "ast-v1:b")
    two.apply(evidence={two.path("lib.f"): (record,)})
    assert two.codes() == ["evidence.version"]
    assert "packaging 0.0.1" in two.message()
    two.apply(evidence={two.path("lib.f"): (record,)}, force=("it",))
    assert two.status() == "applied"


def test_a_dependency_s_version_blocks_every_group_and_is_forced_for_one(two: Lab) -> None:
    two.group("a", two.replace("lib.f", "new.f"))
    two.group("b", two.replace("lib.g", "new.f"))
    made = two.plan(dependencies={"packaging": "<1"}, force=("a",))
    assert decisions(two) == {
        "a": ("apply", ["forced:dependency.version"]),
        "b": ("block", ["dependency.version"]),
    }
    (check,) = [check for check in made.checks if check.code == "dependency.version"]
    assert check.expected == "packaging <1"
    assert check.actual.startswith("packaging ")


@pytest.mark.parametrize(
    ("dependencies", "status"),
    [
        ({"packaging": ">=20"}, "pass"),
        ({"python": ">=3.10"}, "pass"),
        ({"no-such-distribution": ">=1"}, "fail"),
        ({"packaging": "newest"}, "fail"),
    ],
)
def test_dependencies_are_specifiers(two: Lab, dependencies: dict[str, str], status: str) -> None:
    made = two.plan(dependencies=dependencies)
    assert [check.status for check in made.checks if check.code == "dependency.version"] == [status]


def test_a_wildcard_forces(two: Lab) -> None:
    two.group("it", two.replace("lib.f", "new.f"))
    two.plan(evidence={}, force=("lab.*",))
    assert two.decision() == "apply"


def test_of_a_forced_group_only_what_needed_it_counts_as_forced(two: Lab) -> None:
    two.group("it", two.replace("lib.f", "new.f"), two.replace("lib.g", "new.f"), two.replace("lib.h", "new.f"))
    two.record()
    del two.evidence[two.path("lib.g")]
    two.plan(evidence=dict(two.evidence), force=("it",), dependencies={"packaging": "<1"})
    assert decisions(two)["it"] == ("apply", ["forced:dependency.version", "forced:evidence.missing"])
    assert two.planned is not None
    members = two.planned.groups["lab.it"].members
    assert [member.evidence for member in members] == ["source-v1", "forced", "source-v1"]


def test_what_is_forced_and_what_cannot_be_are_both_told(two: Lab) -> None:
    two.group("it", two.replace("lib.f", "new.f"), two.replace("lib.g", "new.narrow"))
    two.plan(evidence={}, force=("it",))
    decision, why = decisions(two)["it"]
    assert (decision, sorted(set(why))) == ("block", ["forced:evidence.missing", "signature"])


def test_a_plan_knows_what_was_loaded_before_it(two: Lab) -> None:
    two.group("it", two.replace("lib.f", "new.f"))
    two.record()
    two.load("new")
    two.forget()
    two.write("first", "")
    two.load("first")
    before = frozenset(sys.modules)
    made = two.plan()
    assert made.loaded == before
    assert two.path("lib") in sys.modules
    assert two.path("lib") not in made.loaded


# compatibility_check.


CHECKS = """
    from turbo_hydra import CompatibilityResult
    ASKED = []
    def fine(context):
        ASKED.append(context)
        return CompatibilityResult(True)
    def unfit(context):
        return CompatibilityResult(False, "the card is too old")
    def raising(context):
        raise ZeroDivisionError("in the check")
    def wrong(context):
        return True
"""


def test_a_check_is_asked_with_what_it_may_know(two: Lab) -> None:
    two.write("checks", CHECKS)
    two.group("it", two.wrap("lib.f", "new.wrapping"), options=Options, compatibility_check="checks.fine")
    two.group("other", two.replace("lib.g", "new.f"))
    two.group("off", two.replace("lib.h", "new.f"))
    two.plan(groups={"lab.it": True, "lab.other": True}, options={"lab.it": {"size": 5}})
    (context,) = two.load("checks").ASKED
    assert isinstance(context, CheckContext)
    assert context.group == "lab.it"
    assert context.options == Options(size=5)
    assert context.enabled == {"lab.it", "lab.other"}
    assert set(context.environment) >= {"python", "versions"}
    assert two.decision() == "apply"


def test_what_a_check_says_is_told_with_the_group_and_its_place(two: Lab) -> None:
    two.write("checks", CHECKS + "\n    def told(context):\n        return CompatibilityResult(True, 'it fits')\n")
    group = two.group("it", two.replace("lib.f", "new.f"), compatibility_check="checks.told")
    two.group("other", two.replace("lib.g", "new.f"), compatibility_check="checks.unfit")
    two.plan()
    for name, status, reason in (("it", "pass", "it fits"), ("other", "fail", "the card is too old")):
        check = two.checks(name)["compatibility_check"]
        assert (check.status, check.group, check.message) == (status, f"lab.{name}", reason)
        assert (check.place and check.place.file) == group.place.file
    assert (two.decision(), two.decision("other")) == ("apply", "block")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("unfit", "the card is too old"),
        ("raising", "raised ZeroDivisionError: in the check"),
        ("wrong", "must return a CompatibilityResult, found True"),
        ("nothing", "raised AttributeError"),
    ],
)
def test_a_check_that_says_no_or_cannot_say_blocks_and_is_not_forced(two: Lab, name: str, text: str) -> None:
    two.write("checks", CHECKS)
    two.group("it", two.replace("lib.f", "new.f"), compatibility_check=f"checks.{name}")
    two.plan(force=("it",))
    assert (two.decision(), two.codes()) == ("block", ["compatibility_check"])
    assert text in two.message()


def test_the_public_result_is_the_engine_s() -> None:
    assert CompatibilityResult(False, "why").reason == "why"


# Conflicts.


def conflict(lab: Lab, *names: str) -> str:
    """The reason of the only conflict, which blocks exactly the groups `names`."""
    assert lab.planned is not None
    (found,) = lab.planned.conflicts
    assert found.groups == tuple(f"lab.{name}" for name in names)
    for id, item in lab.planned.groups.items():
        assert ("conflict" in item.reasons) is (id in found.groups)
        assert item.decision == ("block" if id in found.groups else "apply")
    return found.reason


def test_two_groups_that_change_one_site_conflict_and_both_are_named(two: Lab) -> None:
    two.group("a", two.replace("lib.f", "new.f"))
    two.group("b", two.replace("lib.f", "new.again"))
    two.group("c", two.replace("lib.g", "new.f"))
    lib = two.load("lib")
    before = dict(vars(lib))
    two.apply(force=("a", "b"), groups=dict.fromkeys(("lab.a", "lab.b", "lab.c"), True))
    said = conflict(two, "a", "b")
    for part in ("lab.a", "lab.b", two.path("lib.f"), "switch one off", ".py:"):
        assert part in said
    assert [two.status(name) for name in "abc"] == ["blocked", "blocked", "applied"]
    assert lib.f is before["f"]


def test_one_that_is_off_is_in_no_conflict(two: Lab) -> None:
    two.group("a", two.replace("lib.f", "new.f"))
    two.group("b", two.replace("lib.f", "new.again"))
    made = two.plan(disable=("b",))
    assert made.conflicts == []
    assert two.decision("a") == "apply"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("pkg.f", "pkg.impl.f"),
        ("pkg.impl.f", "pkg.f"),
        ("pkg.C.m", "pkg.impl.C.m"),
        ("pkg.impl.TABLE.f", "pkg.TABLE.f"),
        ("pkg.impl.C", "pkg.C"),
    ],
)
def test_one_object_named_by_two_paths_is_one_target(two: Lab, first: str, second: str) -> None:
    two.write("pkg/", "from .impl import f, C, TABLE\nfrom . import impl\n")
    two.write(
        "pkg.impl",
        "def f(x):\n    return 1\nclass C:\n    def m(self):\n        return 1\n"
        "def table(x):\n    return 1\nTABLE = {'f': table}\n",
    )
    replacement = {"m": "new.m", "C": "new.C", "f": "new.f"}[first[-1]]
    other = {"m": "new.m2", "C": "new.C2", "f": "new.again"}[first[-1]]
    two.write(
        "new",
        NEW.replace("from . import lib", "from .pkg import impl as lib")
        + "\n    def m2(self):\n        return 2\n    class C2(lib.C):\n        pass\n",
    )
    two.group("a", two.replace(first, replacement))
    two.group("b", two.replace(second, other))
    two.plan()
    assert two.planned is not None
    assert two.decision("a") == two.decision("b") == "block"
    assert "both change one object" in two.planned.conflicts[0].reason


def test_an_alias_counts_as_the_target(two: Lab) -> None:
    two.write("lib", LIB + "\n    k = f\n")
    two.group("a", two.replace("lib.f", "new.f", aliases=("lib.k",)))
    two.group("b", two.replace("lib.k", "new.again"))
    two.plan()
    conflict(two, "a", "b")


def test_a_class_and_a_member_of_it_conflict(two: Lab) -> None:
    two.group("a", two.replace("lib.C", "new.C"))
    two.group("b", two.replace("lib.C.m", "new.m"))
    two.plan()
    assert "the first replaces the class that the second changes" in conflict(two, "a", "b")


def test_a_class_and_a_member_of_a_class_inside_it_conflict(two: Lab) -> None:
    two.write("lib", LIB + "\n        class Inner:\n            def m(self):\n                return 1\n")
    two.group("a", two.replace("lib.C", "new.C"))
    two.group("b", two.replace("lib.C.Inner.m", "new.m"))
    two.plan()
    assert "the first replaces the class that the second changes" in conflict(two, "a", "b")


def test_a_member_named_through_a_child_is_another_site_than_the_base_s(two: Lab) -> None:
    two.write("lib", LIB + "\n    class Child(C):\n        pass\n")
    two.write("new", NEW + "\n    def m2(self):\n        return 2\n")
    two.group("a", two.replace("lib.C.m", "new.m"))
    two.group("b", two.replace("lib.Child.m", "new.m2"))
    two.plan()
    assert two.planned is not None
    assert [item.groups for item in two.planned.conflicts] in ([], [("lab.a", "lab.b")])


def test_wraps_stack_in_declared_order_where_each_says_so(two: Lab) -> None:
    two.write(
        "new",
        """
        def one(original, options):
            return lambda x: ["one", original(x)]
        def two(original, options):
            return lambda x: ["two", original(x)]
        """,
    )
    two.group("a", two.wrap("lib.f", "new.one", stack=True))
    two.group("b", two.wrap("lib.f", "new.two", stack=True))
    two.apply()
    assert two.load("lib").f(1) == ["two", ["one", "original"]]
    assert (two.hits("a"), two.hits("b")) == ((1, 0), (1, 0))
    two.engines[-1].undo()
    assert two.load("lib").f(1) == "original"


def test_a_wrap_that_does_not_say_so_conflicts_with_one_that_does(two: Lab) -> None:
    two.group("a", two.wrap("lib.f", "new.wrapping", stack=True))
    two.group("b", two.replace("lib.f", "new.f"))
    two.plan()
    conflict(two, "a", "b")


def test_identical_declarations_count_as_one_and_both_groups_are_named(two: Lab) -> None:
    two.group("a", two.replace("lib.f", "new.f"), two.replace("lib.g", "new.f"))
    two.group("b", two.replace("lib.f", "new.f"), two.replace("lib.h", "new.f"))
    two.apply()
    assert two.planned is not None
    assert two.planned.conflicts == []
    assert (two.status("a"), two.status("b")) == ("applied", "applied")
    lib = two.load("lib")
    assert [lib.f(1), lib.g(1), lib.h(1)] == ["ours"] * 3
    assert (two.hits("a"), two.hits("b")) == ((1, 0), (1, 0))
    assert (two.member("a")["shared_with"], two.member("b")["shared_with"]) == (None, "lab.a")
    assert two.engines[-1].undo() == []
    two.apply(disable=("a",))
    assert two.load("lib").f(1) == "ours", "it is applied while either group is on"


def test_declarations_that_differ_in_options_are_not_identical(two: Lab) -> None:
    two.group("a", two.wrap("lib.f", "new.wrapping"), options=Options)
    two.group("b", two.wrap("lib.f", "new.wrapping"), options=Options)
    two.plan(options={"lab.a": {"size": 2}})
    conflict(two, "a", "b")
    made = two.plan()
    assert made.conflicts == []


def test_observers_conflict_with_nobody_and_are_put_on_last(two: Lab) -> None:
    two.write(
        "new",
        """
        SEEN = []
        def f(x):
            return "ours"
        def watch(original, options):
            def watching(x):
                SEEN.append(original(x))
                return SEEN[-1]
            return watching
        """,
    )
    two.group("watching", two.wrap("lib.f", "new.watch", observer=True))
    two.group("it", two.replace("lib.f", "new.f"))
    before = two.load("lib").f
    two.apply(
        groups={"lab.it": True}, evidence={two.path("lib.f"): two.evidence.get(two.path("lib.f"), ())}, force=("it",)
    )
    assert two.load("lib").f(1) == "ours"
    assert two.load("new").SEEN == ["ours"]
    assert (two.status("watching"), two.status()) == ("applied", "applied")
    assert two.hits() == (1, 0)
    assert two.engines[-1].undo() == []
    assert two.load("lib").f is before


def test_an_observer_needs_no_evidence_and_is_on_though_nothing_is_enabled(two: Lab) -> None:
    two.write("new", "def watch(original, options):\n    return lambda x: original(x)\n")
    two.group("watching", two.wrap("lib.f", "new.watch", observer=True))
    two.apply(groups={}, evidence={}, enabled=False, dependencies={"packaging": "<1"})
    assert two.status("watching") == "applied"


def test_what_needs_a_group_that_may_not_be_compiled_is_blocked_with_it(two: Lab) -> None:
    two.group("compiling", two.replace("lib.f", "new.f"), about=About(why="it compiles", compiles=True))
    two.group("plain", two.replace("lib.g", "new.f"), about=About(why="it is faster", compile=False))
    two.group("needing", two.replace("lib.h", "new.f"), depends_on=("plain",))
    two.plan()
    assert decisions(two) == {
        "compiling": ("apply", []),
        "plain": ("block", ["compile.pairing"]),
        "needing": ("block", ["dependency_blocked"]),
    }


@pytest.mark.parametrize("compiling", [0, 1, 2])
def test_what_may_not_be_compiled_is_blocked_beside_what_compiles_and_nothing_else_is(two: Lab, compiling: int) -> None:
    for number, name in enumerate(("lib.f", "lib.g")):
        two.group(f"one{number}", two.replace(name, "new.f"), about=About(why="it", compiles=number < compiling))
    two.group("untold", two.replace("lib.h", "new.f"))
    two.write("more", LIB)
    two.group("may", two.replace("more.f", "new.f"), about=About(why="it is faster"))
    two.group("plain", two.replace("more.g", "new.f"), about=About(why="it is faster", compile=False))
    two.plan(force=("*",))
    blocked = ["plain"] if compiling else []
    assert [name for name, (decision, _) in decisions(two).items() if decision != "apply"] == blocked
    assert [name for name in ("one0", "one1", "untold", "may", "plain") if two.codes(name)] == blocked
    if compiling:
        assert (reasons(two, "plain"), two.codes("plain")) == (["compile.pairing"], ["compile.pairing"])
        names = ", ".join(f"'lab.one{number}'" for number in range(compiling))
        assert f"(its about says compile=False), which {names} uses" in two.message("plain")


def test_a_group_that_compiles_and_needs_one_in_conflict_refuses_nobody(two: Lab) -> None:
    two.group("a", two.replace("lib.f", "new.f"))
    two.group("b", two.replace("lib.f", "new.again"))
    compiling = About(why="it compiles", compiles=True)
    two.group("compiling", two.replace("lib.g", "new.f"), depends_on=("a",), about=compiling)
    two.group("plain", two.replace("lib.h", "new.f"), about=About(why="it is faster", compile=False))
    two.plan()
    assert decisions(two) == {
        "a": ("block", ["conflict"]),
        "b": ("block", ["conflict"]),
        "compiling": ("block", ["dependency_blocked"]),
        "plain": ("apply", []),
    }


# Options.


@dataclasses.dataclass(frozen=True)
class Options:
    size: int = 1
    rate: float = 0.5
    mode: Literal["fast", "exact"] = "fast"
    name: Optional[str] = None  # noqa: UP045
    flags: tuple[str, ...] = ()
    on: bool = False
    extra: dict[str, int] = dataclasses.field(default_factory=dict)
    limit: int | None = 3


def test_a_factory_gets_an_instance_of_the_options(two: Lab) -> None:
    two.group("it", two.wrap("lib.f", "new.wrapping"), options=Options)
    values = {"size": 4, "rate": 2, "mode": "exact", "name": "n", "flags": ["a"], "on": True, "extra": {"k": 1}}
    two.apply(options={"lab.it": values})
    found, result = two.load("lib").f(1)
    assert result == "original"
    assert (found.size, found.rate, found.mode, found.name, tuple(found.flags), found.on) == (
        4,
        2,
        "exact",
        "n",
        ("a",),
        True,
    )
    assert two.planned is not None
    assert two.planned.groups["lab.it"].to_dict()["options"]["size"] == 4


def test_a_factory_of_a_group_without_options_gets_none(two: Lab) -> None:
    two.group("it", two.wrap("lib.f", "new.wrapping"))
    two.apply()
    assert two.load("lib").f(1) == [None, "original"]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"sise": 1}, "has no option 'sise'"),
        ({"size": "4"}, "'size' of group 'lab.it' must be"),
        ({"size": True}, "'size' of group 'lab.it' must be"),
        ({"size": 1.5}, "'size' of group 'lab.it' must be"),
        ({"size": None}, "'size' of group 'lab.it' must be"),
        ({"on": 1}, "'on' of group 'lab.it' must be"),
        ({"on": "true"}, "'on' of group 'lab.it' must be"),
        ({"rate": "0.5"}, "'rate' of group 'lab.it' must be"),
        ({"rate": True}, "'rate' of group 'lab.it' must be"),
        ({"mode": "quick"}, "'mode' of group 'lab.it' must be"),
        ({"mode": 3}, "'mode' of group 'lab.it' must be"),
        ({"name": 3}, "'name' of group 'lab.it' must be"),
        ({"flags": "a"}, "'flags' of group 'lab.it' must be"),
        ({"flags": [1]}, "'flags' of group 'lab.it' must be"),
        ({"extra": []}, "'extra' of group 'lab.it' must be"),
        ({"limit": "x"}, "'limit' of group 'lab.it' must be"),
    ],
)
def test_a_wrong_option_is_an_error_before_anything_is_imported(two: Lab, values: dict[str, Any], said: str) -> None:
    two.group("it", two.wrap("lib.f", "new.wrapping"), options=Options)
    two.record()
    with pytest.raises(OptimizationConfigError) as caught:
        two.plan(options={"lab.it": values})
    assert said in str(caught.value)
    assert two.path("lib") not in sys.modules


@pytest.mark.parametrize("values", [{"name": None}, {"limit": None}, {"limit": 0}, {"rate": 1}, {"flags": ("a",)}])
def test_an_option_takes_what_its_type_says(two: Lab, values: dict[str, Any]) -> None:
    two.group("it", two.wrap("lib.f", "new.wrapping"), options=Options)
    two.plan(options={"lab.it": values})
    assert two.decision() == "apply"


def test_options_for_a_group_that_has_none_are_an_error(two: Lab) -> None:
    two.group("it", two.replace("lib.f", "new.f"))
    with pytest.raises(OptimizationConfigError, match=r"'lab\.it' has no options"):
        two.plan(options={"lab.it": {"size": 1}})


# What planning leaves behind.


def test_planning_writes_at_no_site(two: Lab) -> None:
    two.group("a", two.replace("lib.f", "new.f"), two.wrap("lib.g", "new.wrapping"))
    two.group("b", two.replace("lib.C.m", "new.m"))
    two.record()
    lib = two.load("lib")
    before = (dict(vars(lib)), dict(vars(lib.C)))
    two.plan()
    assert (dict(vars(lib)), dict(vars(lib.C))) == before


def test_the_plan_as_data_is_plain(two: Lab) -> None:
    import json

    two.group("a", two.wrap("lib.f", "new.wrapping"), options=Options, about=About(why="because"))
    two.group("b", two.replace("lib.nothing", "new.f"), depends_on=("a",))
    made = two.plan().to_execution()
    again = json.loads(json.dumps(made.to_dict()))
    assert again["execution_order"] == ["lab.a"]
    assert made.decision("lab.b") == "block"
    assert [item["decision"] for item in again["groups"]] == ["apply", "block"]
    assert again["groups"][0]["about"]["why"] == "because"
    with pytest.raises(KeyError):
        made.decision("lab.c")


def test_the_plan_as_data_says_all_that_was_declared_and_decided(two: Lab) -> None:
    about = About(why="because", compile=False)
    one = two.group("a", two.wrap("lib.f", "new.wrapping"), options=Options, about=about)
    other = two.group("b", two.replace("lib.nothing", "new.f"), two.replace("lib.g", "new.f"), depends_on=("a",))
    made = two.plan(options={"lab.a": {"size": 2}}, dependencies={"packaging": ">=20"}).to_execution()
    values = {"size": 2, "rate": 0.5, "mode": "fast", "name": None, "flags": (), "on": False, "extra": {}, "limit": 3}
    members = [
        [{"target": two.path("lib.f"), "kind": "wrap", "replacement": two.path("new.wrapping")}],
        [
            {"target": two.path(target), "kind": "replace", "replacement": two.path("new.f")}
            for target in ("lib.nothing", "lib.g")
        ],
    ]
    assert made.groups == [
        {
            "group": group.id,
            "purpose": "optimization",
            "catalog": "tests.engine.conftest",
            "place": str(group.place),
            "about": dataclasses.asdict(about) if group is one else None,
            "depends_on": depends_on,
            "options": options,
            "decision": decision,
            "reasons": why,
            "members": changes,
        }
        for group, depends_on, options, decision, why, changes in (
            (one, [], values, "apply", [], members[0]),
            (other, ["lab.a"], {}, "block", ["target.missing"], members[1]),
        )
    ]
    codes = [item["code"] for item in made.checks if item["group"] is None]
    assert "dependency.version" in codes, "of the config"
    assert [item["target"] for item in made.checks if item["code"] == "target.missing"] == [two.path("lib.nothing")]


def test_what_is_told_of_a_plan_does_not_change_with_it(two: Lab) -> None:
    two.group("it", two.replace("lib.f", "new.f"))
    made = two.plan()
    told = made.to_execution()
    made.groups["lab.it"].block("later")
    made.execution_order.clear()
    assert (told.execution_order, told.groups[0]["decision"], told.groups[0]["reasons"]) == (["lab.it"], "apply", [])


def test_a_group_is_blocked_for_each_reason_once(two: Lab) -> None:
    two.group("it", two.replace("lib.nothing", "new.f"), two.replace("lib.neither", "new.f"))
    item = two.plan().groups["lab.it"]
    assert item.reasons == ["target.missing"]
    item.block("one", "target.missing", "two")
    assert item.reasons == ["target.missing", "one", "two"]


# Comparing with the original.


class Comparing:
    """Notes for how many calls it is made."""

    def __init__(self, calls: int) -> None:
        self.calls = calls

    def __call__(self, original: Any, replacement: Any) -> Any:
        return replacement

    def to_dict(self) -> dict[str, Any]:
        return {"calls": self.calls}


@pytest.mark.parametrize("calls", [0, 3])
@pytest.mark.parametrize("given", [False, True])
def test_members_are_compared_where_it_is_asked_for_and_watching_and_imports_are_not(
    two: Lab, calls: int, given: bool
) -> None:
    two.write("base", "X = 1\n")
    two.write("watches", "def watch(original, options):\n    return lambda x: original(x)\n")
    two.group("it", two.replace("lib.f", "new.f"), two.wrap("lib.g", "new.wrapping"))
    two.group("watching", two.wrap("lib.h", "watches.watch", observer=True))
    two.group("serving", replace_import(two.path("base"), two.path("watches")))
    two.group("off", two.replace("lib.C.m", "new.m"))
    groups = {f"lab.{name}": True for name in ("it", "serving")}
    two.planned = plan.prepare(
        two.registry, two.selection(groups=groups, shadow_calls=calls), Comparing if given else None
    )
    two.planned.uninstall_imports()
    shadows = {id: [member.shadow for member in item.members] for id, item in two.planned.groups.items()}
    told = [item.to_dict() if item else None for item in shadows.pop("lab.it")]
    assert told == ([{"calls": 3}] * 2 if calls and given else [None] * 2)
    assert [member.to_dict()["shadow"] for member in two.planned.groups["lab.it"].members] == told, "in the report too"
    assert shadows == {"lab.watching": [None], "lab.serving": [None], "lab.off": []}


# The replacement's own evidence.


def test_a_changed_replacement_is_a_warning_and_never_a_block(two: Lab) -> None:
    from turbo_hydra.engine.objects import replacement_hash

    group = two.group("it", two.replace("lib.f", "new.f"))
    recorded = replacement_hash(group)
    assert recorded is not None
    two.plan(replacements={"lab.it": recorded})
    assert "replacement.changed" not in two.checks()
    two.write("new", NEW + "\n    # a comment\n")
    two.plan(replacements={"lab.it": recorded})
    assert "replacement.changed" not in two.checks()
    two.write("new", NEW + "\n    HELPER = 1\n")
    two.forget()
    two.apply(replacements={"lab.it": recorded})
    check = two.checks()["replacement.changed"]
    assert (check.status, check.expected, check.group) == ("warning", recorded, "lab.it")
    assert check.actual == replacement_hash(group)
    assert two.status() == "applied"


@pytest.mark.parametrize("text", ["def f(:\n", None], ids=["unparsable", "absent"])
def test_a_replacement_that_cannot_be_read_blocks_its_group_alone(two: Lab, text: str | None) -> None:
    if text is not None:
        two.write("broken", text)
    two.group("it", two.replace("lib.f", "broken.f"))
    two.group("other", two.replace("lib.g", "new.f"))
    two.apply(replacements={"lab.it": "ast-v1:" + "0" * 64})
    assert two.codes() == ["replacement.import"]
    assert (two.status(), two.status("other")) == ("blocked", "applied")


# strict.


@pytest.mark.parametrize(
    ("prepare", "stops"),
    [
        (lambda lab: lab.group("it", lab.replace("lib.f", "new.f")), False),
        (lambda lab: lab.group("it", lab.replace("lib.nothing", "new.f")), True),
        (lambda lab: lab.group("it", lab.replace("lib.f", "new.narrow")), True),
    ],
)
def test_strict_ends_where_an_enabled_group_is_not_applied(
    two: Lab, prepare: Callable[[Lab], object], stops: bool
) -> None:
    prepare(two)
    two.group("off", two.replace("lib.g", "new.f"))
    made = two.apply(groups={"lab.it": True})
    if not stops:
        made.strict_stop()
        return
    with pytest.raises(StrictStop, match=r"'lab\.it' blocked") as caught:
        made.strict_stop()
    assert caught.value.report is made.report
    assert "lab.off" not in str(caught.value)


def test_strict_ends_where_an_enabled_group_needs_one_that_is_off(two: Lab) -> None:
    two.group("off", two.replace("lib.g", "new.f"))
    two.group("it", two.replace("lib.f", "new.f"), depends_on=("off",))
    with pytest.raises(StrictStop, match=r"lab\.it"):
        two.apply(groups={"lab.it": True}).strict_stop()
