# SPDX-License-Identifier: Apache-2.0
"""Import groups: what is served, what runs around an import, what stands in for what is absent."""

from __future__ import annotations

import builtins
import dataclasses
import datetime
import importlib.util
import linecache
import sys
import traceback
import types
from collections.abc import Callable, Iterator
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from typing import TYPE_CHECKING, Any

import pytest

from turbo_hydra.compatibility import before_import, import_alias, optional_import, registry_override, replace_import
from turbo_hydra.engine.errors import DeclarationError
from turbo_hydra.engine.imports import Finder, Rule, finder, made_file

if TYPE_CHECKING:
    from tests.engine.conftest import Lab

HOOKS = """
    seen = []

    def tripled(text, context):
        return text.replace("x * 2", "x * 3")

    def made(text, context):
        assert text is None
        return f"NAME = {context.module!r}\\n"

    def counted(text, context):
        return text + "\\nTIMES = globals().get('TIMES', 0) + 1\\n"

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


@pytest.fixture
def meta_path() -> Iterator[list[Any]]:
    """`sys.meta_path`, put back as it was."""
    before = list(sys.meta_path)
    yield sys.meta_path
    sys.meta_path[:] = before


def test_another_module_is_served_under_the_name(imports: Lab) -> None:
    imports.group("it", replace_import(imports.path("lib"), imports.path("other")))
    imports.apply()
    assert imports.load("lib") is imports.load("other")
    assert imports.load("lib").f(2) == -2
    assert imports.member()["served"] == 1
    entry = imports.engines[-1].report.execution[0]
    assert (entry["status"], entry["error"], imports.member()["note"]) == ("applied", "", "")
    assert imports.checks()["import.timing"].status == "pass"


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
    # Who reads by the file's name alone, as a warning does, is told the same.
    file = imports.load("lib").__file__
    assert file == imports.load("lib").fails.__code__.co_filename
    assert "    return x * 3\n" in linecache.getlines(file)


def test_an_absent_module_is_made_from_nothing(imports: Lab) -> None:
    imports.group("it", replace_import(imports.path("absent"), source=imports.path("hooks.made")))
    imports.apply()
    assert imports.path("absent") == imports.load("absent").NAME


def test_a_package_whose_text_is_rewritten_keeps_its_modules_and_a_module_has_none(imports: Lab) -> None:
    imports.write("pkg/", "from . import part\nfrom .part import NAME\n")
    imports.write("pkg.part", "NAME = __name__\n")
    for name in ("pkg", "lib"):
        imports.group(name, replace_import(imports.path(name), source=imports.path("hooks.counted")))
    imports.group("absent", replace_import(imports.path("absent"), source=imports.path("hooks.made")))
    imports.apply()
    pkg = imports.load("pkg")
    assert (pkg.NAME, pkg.part, pkg.TIMES) == (imports.path("pkg.part"), imports.load("pkg.part"), 1)
    assert list(pkg.__path__) == [str(imports.folder / imports.package / "pkg")]
    assert not any(hasattr(imports.load(name), "__path__") for name in ("lib", "absent"))


def test_who_asks_for_the_source_of_a_served_module_is_told_what_runs(imports: Lab) -> None:
    imports.group("text", replace_import(imports.path("lib"), source=imports.path("hooks.tripled")))
    imports.group("other", replace_import(imports.path("base"), imports.path("other")))
    imports.apply()
    text: Any = importlib.util.find_spec(imports.path("lib"))
    assert "x * 3" in text.loader.get_source(text.name)
    assert text.origin == made_file("lab.text", imports.path("lib"))
    other: Any = importlib.util.find_spec(imports.path("base"))
    assert other.loader.get_source(other.name) is None, "what runs has a name of its own"
    assert other.origin == f"turbo_hydra/{imports.path('other')}"


def test_a_text_that_cannot_run_fails_its_import_and_the_group_says_so(imports: Lab) -> None:
    imports.group("it", replace_import(imports.path("lib"), source=imports.path("hooks.wrong")))
    engine = imports.apply()
    with pytest.raises(SyntaxError):
        imports.load("lib")
    assert engine.report.summary["failed"] == 1
    assert "SyntaxError" in engine.report.execution[0]["error"]


@pytest.mark.parametrize("wrong", ["lib", "base"])
def test_whichever_module_of_a_group_fails_is_told(imports: Lab, wrong: str) -> None:
    texts = {"lib": "hooks.tripled", "base": "hooks.counted", wrong: "hooks.wrong"}
    members = [replace_import(imports.path(name), source=imports.path(text)) for name, text in texts.items()]
    imports.group("it", *members)
    engine = imports.apply()
    with pytest.raises(SyntaxError):
        imports.load(wrong)
    entry = engine.report.execution[0]
    assert (entry["status"], entry["error"].partition(":")[0]) == ("failed", "SyntaxError")


def test_a_function_runs_once_before_the_module(imports: Lab) -> None:
    imports.write("lib", "from .hooks import seen\nBEFORE = list(seen)\n")
    imports.group("it", before_import(imports.path("lib"), imports.path("hooks.note")))
    imports.apply()
    assert [imports.path("lib")] == imports.load("lib").BEFORE
    del sys.modules[imports.path("lib")]
    assert [imports.path("lib")] == imports.load("lib").BEFORE, "it ran before the first import only"


@dataclasses.dataclass(frozen=True)
class Options:
    size: int = 1


@pytest.mark.parametrize("kind", ["before", "source"])
def test_the_functions_are_told_the_module_the_options_and_the_repository(imports: Lab, kind: str) -> None:
    imports.write("tell", "SEEN = []\ndef note(*args):\n    SEEN.append(args[-1])\n    return args[0]\n")
    path = imports.path("tell.note")
    member = (
        before_import(imports.path("lib"), path)
        if kind == "before"
        else replace_import(imports.path("lib"), source=path)
    )
    imports.group("it", member, options=Options)
    imports.apply(options={"lab.it": {"size": 3}}, repository=imports.folder)
    imports.load("lib")
    (context,) = imports.load("tell").SEEN
    assert (context.module, context.options, context.repository) == (imports.path("lib"), Options(3), imports.folder)


@pytest.mark.parametrize("kind", ["before_import", "replace_import"])
def test_a_module_that_is_there_before_apply_is_too_late_for_both(imports: Lab, kind: str) -> None:
    declare: Any = {"before_import": before_import, "replace_import": replace_import}[kind]
    imports.load("lib")
    imports.group("it", declare(imports.path("lib"), imports.path("hooks.note")))
    imports.apply(force=("it",))
    assert imports.status() == "blocked"
    assert imports.codes() == ["import.timing"]
    assert f"so that {kind} cannot take effect; apply earlier" in imports.message()


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


def test_a_module_that_a_function_precedes_can_be_read_before_it_is_imported(imports: Lab) -> None:
    path = imports.write("plain", "VALUE = 1\n")
    imports.group("it", before_import(imports.path("plain"), imports.path("hooks.note")))
    imports.apply()
    spec: Any = importlib.util.find_spec(imports.path("plain"))
    assert spec.loader.get_source(spec.name) == "VALUE = 1\n"
    assert spec.loader.get_filename(spec.name) == str(path)
    assert imports.load("hooks").seen == [], "nothing was executed"


class Made(types.ModuleType):
    """A module of its own type, as an extension's loader makes."""


class Making(MetaPathFinder, Loader):
    """Finds one module and makes it itself."""

    def __init__(self, name: str) -> None:
        self.name = name

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        return ModuleSpec(fullname, self) if fullname == self.name else None

    def create_module(self, spec: ModuleSpec) -> types.ModuleType:
        return Made(spec.name)

    def exec_module(self, module: Any) -> None:
        module.VALUE = 1


def test_a_function_precedes_a_module_that_its_own_loader_makes(imports: Lab, meta_path: list[Any]) -> None:
    meta_path.insert(0, Making(imports.path("ext")))
    imports.group("it", before_import(imports.path("ext"), imports.path("hooks.note")))
    imports.apply()
    assert (type(imports.load("ext")), imports.load("ext").VALUE) == (Made, 1)
    assert imports.load("hooks").seen == [imports.path("ext")]


def test_a_module_without_a_text_is_rewritten_from_nothing(imports: Lab, meta_path: list[Any]) -> None:
    meta_path.insert(0, Making(imports.path("ext")))
    imports.group("it", replace_import(imports.path("ext"), source=imports.path("hooks.made")))
    imports.apply()
    assert imports.path("ext") == imports.load("ext").NAME


def test_a_module_that_is_absent_stays_absent_though_a_function_would_precede_it(imports: Lab) -> None:
    imports.group("it", before_import(imports.path("absent"), imports.path("hooks.note")))
    imports.apply()
    with pytest.raises(ModuleNotFoundError, match="absent"):
        imports.load("absent")
    assert imports.load("hooks").seen == []


def test_a_folder_without_a_file_is_still_a_package_though_a_function_would_precede_it(imports: Lab) -> None:
    imports.write("space.inner", "VALUE = 1\n")
    imports.group("it", before_import(imports.path("space"), imports.path("hooks.note")))
    imports.apply()
    assert imports.load("space.inner").VALUE == 1
    assert imports.load("hooks").seen == [], "there is nothing that is executed"


# Other finders.


class Asking(MetaPathFinder):
    """Asks all finders for each module, as import hooks of other packages do; it takes none itself."""

    def __init__(self) -> None:
        self._asking: set[str] = set()

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if fullname in self._asking:
            return None
        self._asking.add(fullname)
        try:
            return importlib.util.find_spec(fullname)
        finally:
            self._asking.discard(fullname)


@pytest.mark.parametrize("first", ["ours", "theirs"])
def test_beside_a_finder_that_asks_all_others_a_text_is_made_once(
    imports: Lab, meta_path: list[Any], first: str
) -> None:
    imports.group("it", replace_import(imports.path("lib"), source=imports.path("hooks.counted")))
    if first == "ours":
        meta_path.insert(0, Asking())
        imports.apply()
    else:
        imports.apply()
        meta_path.insert(0, Asking())
    module = imports.load("lib")
    assert (module.TIMES, module.f(2)) == (1, 4)
    assert imports.member()["served"] == 1
    imports.forget()
    assert imports.load("lib").TIMES == 1, "the next import is served as well"


@pytest.mark.filterwarnings("ignore::ImportWarning")
def test_a_finder_of_before_python_3_4_is_passed_over(imports: Lab, meta_path: list[Any]) -> None:
    class Old:
        def find_module(self, fullname: str, path: Any = None) -> None: ...

    meta_path.insert(0, Old())
    imports.group("it", before_import(imports.path("lib"), imports.path("hooks.note")))
    imports.apply()
    assert imports.load("lib").f(2) == 4
    assert imports.load("hooks").seen == [imports.path("lib")]


def test_the_finder_stands_first_once_while_it_has_rules_and_keeps_those_of_others(meta_path: list[Any]) -> None:
    before = list(meta_path)
    own = Finder()
    first, second, third = Rule("a"), Rule("a", "another group"), Rule("b")
    for rule in (first, second, third):
        own.add(rule)
        assert meta_path == [own, *before]
    own.remove(first)
    assert (own.rules, meta_path) == ({"a": [second], "b": [third]}, [own, *before])
    own.remove(third)
    assert (own.rules, meta_path) == ({"a": [second]}, [own, *before])
    own.remove(second)
    assert (own.rules, meta_path) == ({}, before)
    own.add(first)
    meta_path.remove(own)  # as a program does that puts back an earlier list
    own.remove(first)
    assert (own.rules, meta_path) == ({}, before)


# Stand-ins.


def test_a_stand_in_has_its_declared_names_and_no_other(imports: Lab) -> None:
    imports.group("it", optional_import(imports.path("absent"), ("op",)))
    imports.apply()
    absent = imports.load("absent")
    with pytest.raises(ImportError, match=r"absent.op' was called, but '.*absent' is not installed"):
        absent.op(1, key=2)
    with pytest.raises(AttributeError):
        absent.misspelt  # noqa: B018 - the look-up is what is tested
    assert imports.member()["note"] == "absent, a stand-in is served"
    assert imports.member()["served"] == 1
    assert repr(absent.op) == f"<{imports.path('absent')}.op, not installed>"


@pytest.mark.parametrize("loaded", [False, True])
def test_a_module_that_is_present_needs_no_stand_in(imports: Lab, loaded: bool) -> None:
    if loaded:
        imports.load("lib")
    imports.group("it", optional_import(imports.path("lib"), ("op",)))
    imports.apply()
    assert not hasattr(imports.load("lib"), "op")
    assert (imports.status(), imports.member()["served"]) == ("applied", None)
    assert imports.member()["note"] == "present, no stand-in needed"


def test_a_module_that_the_program_has_made_itself_is_present(imports: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    made = types.ModuleType(imports.path("absent"))
    monkeypatch.setitem(sys.modules, imports.path("absent"), made)
    imports.group("it", optional_import(imports.path("absent"), ("op",)))
    imports.apply()
    assert imports.load("absent") is made
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
    assert (imports.member()["note"], imports.member()["served"]) == ("set", None if loaded else 0)
    assert engine.undo() == []
    assert not hasattr(module, "UTC")


def test_a_name_that_the_module_has_is_not_replaced_by_an_alias(imports: Lab) -> None:
    imports.group("it", import_alias(imports.path("base"), "datetime.timezone.utc", "READY"))
    imports.apply()
    assert imports.load("base").READY is True
    assert imports.member()["note"] == "the module has the name itself"


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

    @MODELS.register("Norm")
    class Norm: ...

    class Odd:
        _module_dict = None

    ODD = Odd()
    ODD._module_dict = ["Attention"]
"""


@pytest.mark.parametrize("registry", ["registry.MODELS", "registry.MODELS._module_dict"])
def test_registry_entries_are_registered_anew_and_come_back(imports: Lab, registry: str) -> None:
    imports.write("registry", REGISTRY)
    imports.write("ours", 'from .registry import MODELS\n\n@MODELS.register("Attention")\nclass Ours: ...\n')
    imports.group("it", registry_override(imports.path("ours"), imports.path(registry), ("Attention",)))
    engine = imports.apply()
    module = imports.load("registry")
    assert module.MODELS._module_dict == {"Attention": imports.load("ours").Ours, "Norm": module.Norm}
    assert imports.member()["note"] == "registered anew: Attention"
    engine.undo()
    assert module.MODELS._module_dict == {"Attention": module.Attention, "Norm": module.Norm}


@pytest.mark.parametrize(
    ("registry", "replacement", "names", "told"),
    [
        ("registry.MODELS", "other", ("Attention", "Norm"), "importing '{package}.other' did not register 'Attention'"),
        ("registry.MODELS", "part", ("Attention", "Norm"), "importing '{package}.part' did not register 'Norm'"),
        ("registry.MODELS", "raising", ("Attention",), "RuntimeError: at import"),
        ("registry.MODELS", "ours", ("Attention", "Nor"), "'{package}.registry.MODELS' has no entry 'Nor' to override"),
        ("registry.MODELS", "hooks", ("Attention",), "'{package}.hooks' was imported before apply(), and registered"),
        ("registry.Attention", "ours", ("Attention",), "is no mapping and keeps no entries in _module_dict"),
        ("registry.ODD", "ours", ("Attention",), "is no mapping and keeps no entries in _module_dict"),
    ],
)
def test_an_override_that_cannot_be_leaves_the_registry_as_it_was_and_says_why(
    imports: Lab, registry: str, replacement: str, names: tuple[str, ...], told: str
) -> None:
    imports.write("registry", REGISTRY)
    ours = 'from .registry import MODELS\n\n@MODELS.register("Attention")\nclass Ours: ...\n'
    imports.write("ours", ours + '\n@MODELS.register("Norm")\nclass Norm: ...\n')
    imports.write("part", ours)
    imports.write("raising", ours + "raise RuntimeError('at import')\n")
    imports.load("hooks")
    imports.group("it", registry_override(imports.path(replacement), imports.path(registry), names))
    imports.apply()
    assert imports.status() == "blocked"
    assert told.format(package=imports.package) in imports.message()
    module = imports.load("registry")
    assert module.MODELS._module_dict == {"Attention": module.Attention, "Norm": module.Norm}


@pytest.mark.parametrize("name", ["nowhere", "no_package.nowhere", "base.nowhere"])
def test_a_module_to_serve_that_does_not_exist_blocks(imports: Lab, name: str) -> None:
    imports.group("it", replace_import(imports.path("lib"), imports.path(name)))
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
