# SPDX-License-Identifier: Apache-2.0
"""Import groups: what is served, what runs around an import, what stands in for what is absent."""

from __future__ import annotations

import builtins
import datetime
import linecache
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from turbo_hydra.compatibility import before_import, import_alias, optional_import, registry_override, replace_import
from turbo_hydra.engine.errors import DeclarationError
from turbo_hydra.engine.imports import finder

if TYPE_CHECKING:
    from tests.engine.conftest import Lab

HOOKS = """
    seen = []

    def tripled(text, context):
        return text.replace("x * 2", "x * 3")

    def made(text, context):
        assert text is None
        return f"NAME = {context.module!r}\\n"

    def wrong(text, context):
        return "def broken(:"

    def note(context):
        seen.append(context.module)

    def f(x):
        return x + 1
"""


@pytest.fixture
def imports(make_lab: Callable[[], Lab]) -> Iterator[Lab]:
    """A package with a module to replace, and hooks."""
    lab = make_lab()
    lab.write("lib", "from . import base\n\ndef f(x):\n    return x * 2\n\ndef fails(x):\n    raise ValueError(x)\n")
    lab.write("base", "READY = True\n")
    lab.write("other", "def f(x):\n    return -x\n")
    lab.write("hooks", HOOKS)
    yield lab
    if lab.planned is not None:
        lab.planned.uninstall_imports()


def test_another_module_is_served_under_the_name(imports: Lab) -> None:
    imports.group("it", replace_import(imports.path("lib"), imports.path("other")))
    imports.apply()
    assert imports.load("lib") is imports.load("other")
    assert imports.load("lib").f(2) == -2
    assert imports.member()["served"] == 1


def test_a_rewritten_text_runs_as_the_module_itself(imports: Lab) -> None:
    imports.group("it", replace_import(imports.path("lib"), source=imports.path("hooks.tripled")))
    imports.apply()
    module = imports.load("lib")
    assert module.__name__ == imports.path("lib")
    assert module.base is imports.load("base"), "relative imports are those of the module"
    assert module.f(2) == 6
    assert module.f.__module__ == imports.path("lib")


def test_a_traceback_through_a_rewritten_text_shows_its_lines(imports: Lab) -> None:
    imports.group("it", replace_import(imports.path("lib"), source=imports.path("hooks.tripled")))
    imports.apply()
    linecache.checkcache()  # what a traceback of another error does
    with pytest.raises(ValueError, match="1") as caught:
        imports.load("lib").fails(1)
    assert "raise ValueError(x)" in "".join(traceback.format_exception(caught.value))


def test_an_absent_module_is_made_from_nothing(imports: Lab) -> None:
    imports.group("it", replace_import(imports.path("absent"), source=imports.path("hooks.made")))
    imports.apply()
    assert imports.path("absent") == imports.load("absent").NAME


def test_a_text_that_cannot_run_fails_its_import_and_the_group_says_so(imports: Lab) -> None:
    imports.group("it", replace_import(imports.path("lib"), source=imports.path("hooks.wrong")))
    engine = imports.apply()
    with pytest.raises(SyntaxError):
        imports.load("lib")
    assert engine.report.summary["failed"] == 1
    assert "SyntaxError" in engine.report.execution[0]["error"]


def test_a_function_runs_once_before_the_module(imports: Lab) -> None:
    imports.write("lib", "from .hooks import seen\nBEFORE = list(seen)\n")
    imports.group("it", before_import(imports.path("lib"), imports.path("hooks.note")))
    imports.apply()
    assert [imports.path("lib")] == imports.load("lib").BEFORE
    del sys.modules[imports.path("lib")]
    assert [imports.path("lib")] == imports.load("lib").BEFORE, "it ran before the first import only"


def test_functions_of_several_groups_run_before_one_module(imports: Lab) -> None:
    imports.write("more", "from . import hooks\ndef note(name):\n    hooks.seen.append('more')\n")
    imports.write("lib", "from .hooks import seen\nBEFORE = list(seen)\n")
    imports.group("it", before_import(imports.path("lib"), imports.path("hooks.note")))
    imports.group("also", before_import(imports.path("lib"), imports.path("more.note")))
    imports.apply()
    assert sorted(imports.load("lib").BEFORE) == sorted([imports.path("lib"), "more"])


def test_what_is_served_leaves_no_trace_in_the_module_of_a_hook(imports: Lab) -> None:
    imports.group("it", before_import(imports.path("lib"), imports.path("hooks.note")))
    imports.apply()
    module = imports.load("lib")
    assert type(module.__loader__).__module__.startswith(("importlib", "_frozen_importlib"))
    assert module.__spec__.loader is module.__loader__


def test_a_stand_in_has_its_declared_names_and_no_other(imports: Lab) -> None:
    imports.group("it", optional_import(imports.path("absent"), ("op",)))
    imports.apply()
    absent = imports.load("absent")
    with pytest.raises(ImportError, match=r"absent.op' was called, but '.*absent' is not installed"):
        absent.op(1, key=2)
    with pytest.raises(AttributeError):
        absent.misspelt  # noqa: B018 - the look-up is what is tested
    assert imports.member()["note"] == "absent, a stand-in is served"


def test_a_module_that_is_present_needs_no_stand_in(imports: Lab) -> None:
    imports.group("it", optional_import(imports.path("lib"), ("op",)))
    imports.apply()
    assert not hasattr(imports.load("lib"), "op")
    assert imports.member()["note"] == "present, no stand-in needed"


def test_a_package_that_is_there_in_part_counts_as_absent(imports: Lab) -> None:
    imports.write("part", "from . import no_such_part\n")
    needs = (imports.path("base"), imports.path("no_such_part"))
    imports.group("it", optional_import(imports.path("part"), ("NO",), needs=needs))
    imports.apply()
    with pytest.raises(ImportError, match=r"part.NO' was called"):
        imports.load("part").NO()
    assert imports.member()["note"] == f"absent without {needs[1]}, a stand-in is served"


def test_a_package_that_has_what_it_needs_is_present(imports: Lab) -> None:
    imports.group("it", optional_import(imports.path("lib"), ("op",), needs=(imports.path("base"),)))
    imports.apply()
    assert imports.load("lib").f(2) == 4


@pytest.mark.parametrize("loaded", [True, False])
def test_an_alias_is_set_where_it_is_missing(imports: Lab, loaded: bool) -> None:
    if loaded:
        imports.load("lib")
    imports.group("it", import_alias(imports.path("lib"), "datetime.timezone.utc", "UTC"))
    engine = imports.apply()
    module = imports.load("lib")
    assert module.UTC is datetime.timezone.utc
    engine.undo()
    assert not hasattr(module, "UTC")


def test_a_name_that_the_module_has_is_not_replaced_by_an_alias(imports: Lab) -> None:
    imports.group("it", import_alias(imports.path("base"), "datetime.timezone.utc", "READY"))
    imports.apply()
    assert imports.load("base").READY is True


REGISTRY = """
    class Registry:
        def __init__(self):
            self._module_dict = {}

        def register(self, name):
            def add(cls):
                if name in self._module_dict:
                    raise KeyError(name)
                self._module_dict[name] = cls
                return cls
            return add

    MODELS = Registry()

    @MODELS.register("Attention")
    class Attention: ...
"""


def test_registry_entries_are_registered_anew_and_come_back(imports: Lab) -> None:
    imports.write("registry", REGISTRY)
    imports.write("ours", 'from .registry import MODELS\n\n@MODELS.register("Attention")\nclass Ours: ...\n')
    imports.group("it", registry_override(imports.path("ours"), imports.path("registry.MODELS"), ("Attention",)))
    engine = imports.apply()
    registry = imports.load("registry")
    assert registry.MODELS._module_dict == {"Attention": imports.load("ours").Ours}
    engine.undo()
    assert registry.MODELS._module_dict == {"Attention": registry.Attention}


def test_an_override_that_registers_nothing_is_taken_back_and_blocks(imports: Lab) -> None:
    imports.write("registry", REGISTRY)
    imports.group("it", registry_override(imports.path("other"), imports.path("registry.MODELS"), ("Attention",)))
    imports.apply()
    assert imports.status() == "blocked"
    assert "did not register 'Attention'" in imports.message()
    registry = imports.load("registry")
    assert registry.MODELS._module_dict == {"Attention": registry.Attention}


def test_a_module_that_was_imported_before_cannot_be_replaced(imports: Lab) -> None:
    imports.load("lib")
    imports.group("it", replace_import(imports.path("lib"), imports.path("other")))
    imports.apply(force=("it",))
    assert imports.status() == "blocked"
    assert imports.codes() == ["import.timing"]


def test_a_module_to_serve_that_does_not_exist_blocks(imports: Lab) -> None:
    imports.group("it", replace_import(imports.path("lib"), imports.path("nowhere")))
    imports.apply()
    assert imports.codes() == ["replacement.import"]
    assert imports.load("lib").f(2) == 4


def test_an_ordinary_group_may_change_what_an_import_group_that_it_needs_serves(imports: Lab) -> None:
    imports.group("serve", replace_import(imports.path("lib"), source=imports.path("hooks.tripled")))
    imports.group("it", imports.replace("lib.f", "hooks.f"), depends_on=("serve",))
    imports.apply(force=("it",))
    assert imports.status() == "applied"
    assert imports.load("lib").f(2) == 3


def test_evidence_of_a_served_text_is_that_text(imports: Lab) -> None:
    imports.group("serve", replace_import(imports.path("lib"), source=imports.path("hooks.tripled")))
    imports.group("it", imports.replace("lib.f", "hooks.f"), depends_on=("serve",))
    imports.record()  # of the file as it lies there, which is not what is served
    imports.apply()
    assert imports.codes() == ["evidence.changed"]


def test_what_lies_under_a_served_module_is_a_conflict_without_the_dependency(imports: Lab) -> None:
    imports.group("serve", replace_import(imports.path("lib"), source=imports.path("hooks.tripled")))
    imports.group("it", imports.replace("lib.f", "hooks.f"))
    imports.apply(force=("it",))
    assert imports.status() == imports.status("serve") == "blocked"
    assert "let it depend on the first" in imports.message()


def test_a_late_target_under_a_served_module_is_a_conflict_too(imports: Lab) -> None:
    imports.group("serve", replace_import(imports.path("lib"), source=imports.path("hooks.tripled")))
    imports.group("it", imports.replace("lib.f", "hooks.f", late=True))
    (conflict,) = imports.plan().conflicts
    assert conflict.groups == ("lab.serve", "lab.it")
    assert "let it depend on the first" in conflict.reason


@pytest.mark.parametrize("late", [False, True])
def test_a_module_is_not_served_by_a_group_in_conflict(imports: Lab, late: bool) -> None:
    imports.group("serve", replace_import(imports.path("lib"), source=imports.path("hooks.tripled")))
    imports.group("it", imports.replace("lib.f", "hooks.f", late=late))
    imports.apply(force=("it",))
    assert imports.status("serve") == "blocked"
    assert imports.load("lib").f(2) == 4


def test_two_ways_to_serve_one_module_are_a_conflict(imports: Lab) -> None:
    imports.group("one", replace_import(imports.path("lib"), imports.path("other")))
    imports.group("two", replace_import(imports.path("lib"), source=imports.path("hooks.tripled")))
    imports.apply()
    assert imports.status("one") == imports.status("two") == "blocked"
    assert imports.load("lib").f(2) == 4


def test_two_groups_that_serve_one_module_in_the_same_way_are_no_conflict(imports: Lab) -> None:
    for name in ("one", "two"):
        imports.group(name, replace_import(imports.path("lib"), source=imports.path("hooks.tripled")))
    made = imports.apply()
    assert made.plan.conflicts == []
    assert imports.load("lib").f(2) == 6
    assert [imports.status(name) for name in ("one", "two")] == ["applied", "applied"]
    assert made.undo() == []
    imports.forget()
    assert imports.load("lib").f(2) == 4


def test_a_switched_off_import_group_has_no_effect_and_skips_what_needs_it(imports: Lab) -> None:
    imports.group("serve", replace_import(imports.path("lib"), imports.path("other")))
    imports.group("it", imports.replace("lib.f", "hooks.f"), depends_on=("serve",))
    imports.apply(disable=("serve",))
    assert (imports.status("serve"), imports.status()) == ("skipped", "skipped")
    assert imports.load("lib").f(2) == 4


def test_undo_takes_the_hook_away_and_import_itself_was_never_changed(imports: Lab) -> None:
    before = list(sys.meta_path)
    real_import = builtins.__import__
    imports.group("it", replace_import(imports.path("lib"), imports.path("other")))
    engine = imports.apply()
    assert finder in sys.meta_path
    assert builtins.__import__ is real_import
    engine.undo()
    assert sys.meta_path == before
    assert imports.load("lib").f(2) == 4


@pytest.mark.parametrize(
    "declare",
    [
        lambda: replace_import("a.b"),
        lambda: replace_import("a.b", "c", source="d.e"),
        lambda: replace_import("a b", "c"),
        lambda: optional_import("a", "names"),  # type: ignore[arg-type]
        lambda: optional_import("a", ("not a name",)),
        lambda: optional_import("a", needs="b"),  # type: ignore[arg-type]
        lambda: optional_import("a", needs=("not a module",)),
        lambda: import_alias("a", "b.c", "not a name"),
        lambda: registry_override("a", "b.C", ()),
        lambda: before_import("", "a.b"),
    ],
)
def test_a_malformed_declaration_is_refused_with_its_place(declare: Callable[[], object]) -> None:
    with pytest.raises(DeclarationError, match=r"test_imports\.py:\d+: "):
        declare()


def test_import_kinds_do_not_mix_with_replacements(imports: Lab) -> None:
    with pytest.raises(DeclarationError, match="make two groups"):
        imports.group(
            "it", replace_import(imports.path("lib"), imports.path("other")), imports.replace("lib.f", "hooks.f")
        )
