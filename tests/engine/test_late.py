# SPDX-License-Identifier: Apache-2.0
"""Targets that come into being after apply(): in a module that is imported later, in the script itself."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from turbo_hydra.engine.canonical import ast_hash, source_hash
from turbo_hydra.engine.errors import StrictStop
from turbo_hydra.engine.evidence import EvidenceRecord

if TYPE_CHECKING:
    from tests.engine.conftest import Lab

TEXT = "def f(x):\n    return x * 2\n"

WRAPS = """
    def plus(original, options):
        def g(x):
            return original(x) + 1
        return g

    def times(original, options):
        def g(x):
            return original(x) * 2
        return g
"""


@pytest.fixture
def late(make_lab: Callable[[], Lab]) -> Lab:
    """A package whose plug-in is imported late; the evidence is static, of the text that is validated."""
    lab = make_lab()
    lab.write("plugin", TEXT + "\n\nclass Model:\n    def step(self, x):\n        return x\n")
    lab.write("new", "def f(x):\n    return x * 10\n\ndef step(self, x):\n    return x + 100\n")
    lab.write("lib", "def g(x):\n    return x\n")
    lab.evidence[lab.path("plugin.f")] = (EvidenceRecord(source=source_hash(TEXT), ast=ast_hash(TEXT)),)
    return lab


def test_a_late_target_is_written_when_its_module_has_been_executed(late: Lab) -> None:
    late.group("it", late.replace("plugin.f", "new.f", late=True))
    engine = late.apply()
    assert late.path("plugin") not in sys.modules, "nothing was imported for it"
    assert engine.report.summary["not_started"] == 1, "what was not written is not applied"
    assert engine.report.execution[0]["error"] == f"'{late.path('plugin.f')}' has not come into being"
    assert late.load("plugin").f(2) == 20
    assert (engine.report.summary["applied"], engine.report.execution[0]["error"]) == (1, "")
    assert late.hits() == (1, 0)


def test_a_late_method_is_written_on_its_class(late: Lab) -> None:
    late.group("it", late.replace("plugin.Model.step", "new.step", late=True))
    late.record("plugin.Model.step")
    late.apply()
    assert late.load("plugin").Model().step(1) == 101


def test_a_late_target_that_differs_rolls_its_whole_group_back(late: Lab) -> None:
    late.write("plugin", "def f(x):\n    return x * 7\n")
    late.group("it", late.replace("lib.g", "new.f"), late.replace("plugin.f", "new.f", late=True))
    late.record("lib.g")
    engine = late.apply()
    assert late.get("lib.g")(1) == 10
    assert late.load("plugin").f(2) == 14
    assert late.get("lib.g")(1) == 1, "the member that was written is taken back too"
    assert engine.report.execution[0]["status"] == "rolled_back"
    assert engine.report.execution[0]["reasons"] == ["evidence.changed"]


@pytest.mark.parametrize("differs", [0, 1, 2])
def test_no_member_is_written_after_one_of_its_group_that_differs(late: Lab, differs: int) -> None:
    names = ("a", "b", "c")
    texts = [f"def {name}(x):\n    return x * 2\n" for name in names]
    late.write("several", "".join(texts))
    late.group("it", *(late.replace(f"several.{name}", "new.f", late=True) for name in names))
    late.record()
    texts[differs] = texts[differs].replace("* 2", "* 7")
    late.write("several", "".join(texts))
    late.apply()
    several = late.load("several")
    expected = [7 if number == differs else 2 for number in range(3)]
    assert [getattr(several, name)(1) for name in names] == expected
    assert late.status() == "rolled_back"


def test_what_depends_on_a_late_group_goes_with_it_and_nothing_else(late: Lab) -> None:
    late.write("plugin", "def f(x):\n    return x * 7\n")
    late.write("lib", "def g(x):\n    return x\ndef h(x):\n    return x\ndef other(x):\n    return x\n")
    late.group("base", late.replace("plugin.f", "new.f", late=True))
    late.group("it", late.replace("lib.g", "new.f"), depends_on=("base",))
    late.group("off", late.replace("lib.other", "new.f"), depends_on=("base",))
    late.group("further", late.replace("lib.h", "new.f"), depends_on=("it",))
    late.group("other", late.replace("lib.other", "new.f"))
    late.record("lib.g", "lib.h", "lib.other")
    engine = late.apply(disable=("off",))
    late.load("plugin")
    statuses = {item["group"].removeprefix("lab."): item["status"] for item in engine.report.execution}
    assert statuses == {
        "base": "rolled_back",
        "it": "rolled_back",
        "off": "skipped",
        "further": "rolled_back",
        "other": "applied",
    }
    assert [late.get(f"lib.{name}")(1) for name in ("g", "h", "other")] == [1, 1, 10]
    reasons = {item["group"].removeprefix("lab."): item["reasons"] for item in engine.report.execution}
    assert reasons["base"] == ["evidence.changed"]
    assert reasons["it"] == reasons["further"] == ["dependency_rolled_back"]
    assert "'lab.base', which it depends on, was rolled back" in engine.outcomes["lab.it"].error


def test_a_site_that_another_group_wraps_by_now_is_left_alone_and_told(late: Lab) -> None:
    late.write("plugin", "def f(x):\n    return x * 7\n")
    late.write("wraps", WRAPS)
    late.group("it", late.wrap("lib.g", "wraps.plus", stack=True), late.replace("plugin.f", "new.f", late=True))
    late.group("above", late.wrap("lib.g", "wraps.times", stack=True))
    late.record("lib.g")
    late.apply()
    late.load("plugin")
    assert late.get("lib.g")(1) == 4, "taking the lower wrap out would drop the upper one"
    assert (late.status(), late.status("above")) == ("failed", "applied")
    error = late.engines[-1].outcomes["lab.it"].error
    assert "not the code that the group was validated against" in error
    assert f"'{late.path('lib.g')}' stays, since it is wrapped by " in error


def test_a_change_that_another_group_shares_stays_when_the_first_is_rolled_back(late: Lab) -> None:
    late.write("plugin", "def f(x):\n    return x * 7\n")
    late.group("it", late.replace("lib.g", "new.f"), late.replace("plugin.f", "new.f", late=True))
    late.group("same", late.replace("lib.g", "new.f"))
    late.record("lib.g")
    late.apply()
    late.load("plugin")
    assert late.get("lib.g")(1) == 10
    assert (late.status(), late.status("same")) == ("rolled_back", "applied")
    assert late.hits("same") == (1, 0)


def test_a_strict_run_ends_where_a_late_target_differs(late: Lab) -> None:
    late.write("plugin", "def f(x):\n    return x * 7\n")
    late.group("it", late.replace("plugin.f", "new.f", late=True))
    late.apply(strict=True)
    with pytest.raises(StrictStop, match="not the code that the group was validated against"):
        late.load("plugin")


def test_a_forced_late_target_is_written_all_the_same(late: Lab) -> None:
    late.write("plugin", "def f(x):\n    return x * 7\n")
    late.group("it", late.replace("plugin.f", "new.f", late=True))
    late.apply(force=("it",))
    assert late.load("plugin").f(2) == 20
    assert late.member()["evidence"] == "forced"


def test_a_late_target_without_evidence_blocks_at_once(late: Lab) -> None:
    late.group("it", late.replace("plugin.f", "new.f", late=True))
    engine = late.apply(evidence={})
    assert (late.status(), late.codes()) == ("blocked", ["evidence.missing"])
    assert engine.report.execution[0]["error"] == "", "it waits for nothing; the check says why"


def test_a_late_target_that_is_there_already_is_written_at_once(late: Lab) -> None:
    late.load("plugin")
    late.group("it", late.replace("plugin.f", "new.f", late=True))
    late.apply()
    assert late.get("plugin.f")(2) == 20


def test_a_name_bound_from_a_late_module_by_its_importer_is_the_replacement(late: Lab) -> None:
    late.write("user", "from .plugin import f as g\n")
    late.group("it", late.replace("plugin.f", "new.f", late=True))
    late.apply()
    assert late.load("user").g(2) == 20


def test_a_second_name_in_the_late_module_itself_is_rebound(late: Lab) -> None:
    late.write("plugin", TEXT + "\n\nagain = f\n")
    late.group("it", late.replace("plugin.f", "new.f", late=True))
    late.apply()
    plugin = late.load("plugin")
    assert (plugin.f(2), plugin.again(2)) == (20, 20)
    assert late.member()["rebound"] == [late.path("plugin.again")]
    assert (late.member()["evidence"], late.member()["pending"]) == ("source-v1", False)


def test_wraps_of_one_late_target_stack_in_declared_order(late: Lab) -> None:
    late.write("wraps", WRAPS)
    late.group("plus", late.wrap("plugin.f", "wraps.plus", stack=True, late=True))
    late.group("times", late.wrap("plugin.f", "wraps.times", stack=True, late=True))
    engine = late.apply()
    plugin = late.load("plugin")
    assert plugin.f(3) == (3 * 2 + 1) * 2
    assert [late.status(name) for name in ("plus", "times")] == ["applied", "applied"]
    assert engine.undo() == []
    assert plugin.f(3) == 6


@pytest.mark.parametrize("over", ["raises", "takes less"])
def test_a_late_wrap_that_does_not_fit_over_another_one_takes_its_group_back(late: Lab, over: str) -> None:
    late.write(
        "plugin",
        TEXT
        + """

class Model:
    def step(self, x):
        return x

import sys, types

class Watched(types.ModuleType):
    def __setattr__(self, name, value):
        written.append(value)
        super().__setattr__(name, value)

written = []
sys.modules[__name__].__class__ = Watched
""",
    )
    late.write(
        "wraps",
        WRAPS
        + """
    def other(original, options):
        if not hasattr(original, "__wrapped__"):
            return lambda x: original(x) + 100
        if "raises" == OVER:
            raise ValueError("wrapped")
        return lambda: 0
    """.replace("OVER", repr(over)),
    )
    late.group("plus", late.wrap("plugin.f", "wraps.plus", stack=True, late=True))
    late.group("it", late.wrap("plugin.f", "wraps.other", stack=True, late=True), late.replace("lib.g", "new.f"))
    late.group("needing", late.replace("plugin.Model.step", "new.step", late=True), depends_on=("it",))
    late.record("lib.g", "plugin.Model.step")
    engine = late.apply(force=("needing",))
    plugin = late.load("plugin")
    assert (plugin.f(3), late.get("lib.g")(1), plugin.Model().step(1)) == (3 * 2 + 1, 1, 1)
    assert [late.status(name) for name in ("plus", "it", "needing")] == ["applied", "rolled_back", "rolled_back"]
    entry = engine.report.execution[1]
    assert entry["reasons"] == {"raises": ["replacement.factory"], "takes less": ["signature"]}[over]
    assert entry["error"] == late.message()
    assert plugin.written == [plugin.f], "nothing of it has stood there"
    assert engine.undo() == []
    assert plugin.f(3) == 6


@pytest.mark.parametrize("first", ["watch", "it"])
def test_who_watches_a_late_target_stands_above_what_replaces_it(late: Lab, first: str) -> None:
    late.write("wraps", WRAPS)
    for name in (first, *({"watch", "it"} - {first})):
        kind = late.replace("plugin.f", "new.f", late=True)
        late.group(name, late.wrap("plugin.f", "wraps.plus", observer=True, late=True) if name == "watch" else kind)
    engine = late.apply()
    plugin = late.load("plugin")
    assert plugin.f(2) == 2 * 10 + 1
    assert [late.status(name) for name in ("watch", "it")] == ["applied", "applied"]
    assert engine.undo() == []
    assert plugin.f(2) == 4


@pytest.mark.parametrize("strict", [False, True])
def test_a_late_target_that_cannot_be_written_takes_its_group_and_its_dependents_back(late: Lab, strict: bool) -> None:
    late.write(
        "plugin",
        TEXT
        + """

import sys, types

class Sealed(types.ModuleType):
    def __setattr__(self, name, value):
        raise RuntimeError("sealed")

sys.modules[__name__].__class__ = Sealed
""",
    )
    late.group("base", late.replace("lib.g", "new.f"), late.replace("plugin.f", "new.f", late=True))
    late.write("more", "def h(x):\n    return x\n")
    late.group("it", late.replace("more.h", "new.f"), depends_on=("base",))
    late.record("lib.g", "more.h")
    engine = late.apply(strict=strict)
    if strict:
        with pytest.raises(StrictStop, match="RuntimeError: sealed"):
            late.load("plugin")
    else:
        assert late.load("plugin").f(2) == 4
    assert (late.get("lib.g")(1), late.get("more.h")(1)) == (1, 1)
    assert engine.outcomes["lab.base"].error == "RuntimeError: sealed"
    assert (late.status("base"), late.status()) == ("rolled_back", "rolled_back")


def test_a_strict_run_goes_on_where_other_modules_come_and_where_the_late_target_fits(late: Lab) -> None:
    late.write("pkg/", "")
    late.write("pkg.plugin", TEXT)
    late.evidence[late.path("pkg.plugin.f")] = late.evidence[late.path("plugin.f")]
    late.group("it", late.replace("pkg.plugin.f", "new.f", late=True))
    engine = late.apply(strict=True)
    assert engine.pending
    late.load("pkg")
    assert engine.pending
    assert late.load("pkg.plugin").f(2) == 20
    assert not engine.pending


def test_a_group_that_is_not_applied_waits_for_nothing(late: Lab) -> None:
    late.group("it", late.replace("plugin.f", "new.f", late=True))
    before = list(sys.meta_path)
    turned_off: tuple[dict[str, Any], ...] = ({"evidence": {}}, {"disable": ("it",)})
    for settings in turned_off:
        engine = late.apply(**settings)
        assert not engine.pending
        assert sys.meta_path == before
        assert late.load("plugin").f(2) == 4
        late.forget()


def test_after_undo_nothing_waits_for_the_late_module(late: Lab) -> None:
    before = list(sys.meta_path)
    late.group("it", late.replace("lib.g", "new.f"), late.replace("plugin.f", "new.f", late=True))
    late.record("lib.g")
    engine = late.apply()
    assert sys.meta_path != before
    assert engine.undo() == []
    assert sys.meta_path == before
    assert not engine.pending
    assert late.load("plugin").f(2) == 4
    assert late.get("lib.g")(1) == 1
    assert late.status() == "rolled_back"


def test_nothing_is_looked_up_for_a_group_that_is_not_applied_beside_one_that_is(late: Lab) -> None:
    late.group("it", late.replace("plugin.f", "new.f", late=True))
    late.group("other", late.replace("plugin.Model.step", "new.step", late=True))
    late.apply(evidence=dict(late.evidence))
    entry = late.member("other")
    late.load("plugin")
    assert (late.status(), late.status("other")) == ("applied", "blocked")
    assert late.member("other") == entry
    assert late.codes("other") == ["evidence.missing"]


@pytest.mark.parametrize("alone", [True, False])
def test_a_group_that_waits_is_taken_back_too_and_is_not_written_afterwards(late: Lab, alone: bool) -> None:
    members = [late.replace("plugin.f", "new.f", late=True)]
    late.group("it", *members, *([] if alone else [late.replace("lib.g", "new.f")]))
    late.record("lib.g")
    engine = late.apply()
    assert engine.undo() == []
    assert (late.status(), engine.report.summary["rolled_back"], engine.pending) == ("rolled_back", 1, False)
    assert late.load("plugin").f(2) == 4
    engine.bind_late(late.path("plugin"))
    assert late.get("plugin.f")(2) == 4


def test_a_target_that_its_package_imports_is_written_once_and_stays(late: Lab) -> None:
    late.write("pkg/", "from . import plugin\n")
    late.write("pkg.plugin", TEXT)
    late.evidence[late.path("pkg.plugin.f")] = late.evidence[late.path("plugin.f")]
    late.group("it", late.replace("pkg.plugin.f", "new.f", late=True))
    late.apply()
    assert late.load("pkg").plugin.f(2) == 20
    assert (late.status(), late.codes(), late.member()["evidence"]) == ("applied", [], "source-v1")


def test_a_target_is_written_no_earlier_than_its_module_is_done(late: Lab) -> None:
    late.write("plugin", TEXT + "\n\nfrom . import second\nBEFORE = f(2)\n")
    late.write("second", TEXT)
    late.evidence[late.path("second.f")] = late.evidence[late.path("plugin.f")]
    for name in ("plugin", "second"):
        late.group(name, late.replace(f"{name}.f", "new.f", late=True))
    late.apply()
    plugin = late.load("plugin")
    assert (plugin.BEFORE, plugin.second.f(2), plugin.f(2)) == (4, 20, 20)


def test_a_late_module_without_a_package_is_waited_for(late: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"{late.package}_alone"
    (late.folder / f"{name}.py").write_text(TEXT, encoding="utf-8")
    late.evidence[f"{name}.f"] = late.evidence[late.path("plugin.f")]
    late.group("it", late.replace(f"/{name}.f", "new.f", late=True))
    late.apply()
    assert late.load(f"/{name}").f(2) == 20
    monkeypatch.delitem(sys.modules, name)


@pytest.mark.parametrize("together", [True, False])
def test_members_of_a_group_are_written_as_their_modules_come(late: Lab, together: bool) -> None:
    late.write("second", TEXT + ("from . import plugin\n" if together else ""))
    late.evidence[late.path("second.f")] = late.evidence[late.path("plugin.f")]
    late.group("it", late.replace("plugin.f", "new.f", late=True), late.replace("second.f", "new.f", late=True))
    engine = late.apply()
    assert late.load("second").f(2) == 20
    assert engine.pending is not together
    assert late.load("plugin").f(2) == 20
    assert not engine.pending
    assert [late.hits(index=index) for index in range(2)] == [(1, 0), (1, 0)]


def test_a_late_target_below_a_folder_without_a_file_is_written(late: Lab) -> None:
    late.write("space.inner", TEXT)
    late.evidence[late.path("space.inner.f")] = late.evidence[late.path("plugin.f")]
    late.group("it", late.replace("space.inner.f", "new.f", late=True))
    late.apply()
    assert late.load("space.inner").f(2) == 20


def test_a_target_in_the_script_is_written_when_its_name_is_bound(late: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    script = types.ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", script)
    late.write("script", TEXT)
    record = late.evidence[late.path("plugin.f")]
    late.evidence["__main__.f"] = record
    late.group("it", late.replace("/__main__.f", "new.f"))
    engine = late.apply()
    engine.bind_late("__main__")
    assert engine.report.summary["not_started"] == 1
    path = late.folder / late.package / "script.py"
    exec(compile(TEXT, str(path), "exec", dont_inherit=True), script.__dict__)
    engine.bind_late("__main__")
    assert engine.report.summary["applied"] == 1
    assert script.f(2) == 20
