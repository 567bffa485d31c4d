# SPDX-License-Identifier: Apache-2.0
"""What a catalog may declare, and how it is told what it may not."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from turbo_hydra import About, Registry, group, replace, wrap
from turbo_hydra.engine.declarations import declare
from turbo_hydra.engine.errors import DeclarationError, OptimizationConfigError

HEAD = "from dataclasses import dataclass\nfrom turbo_hydra import group, replace, wrap\n"


class Catalogs:
    """Writes catalog modules of names that no other test uses, and declares in a registry of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.names: list[str] = []

    def write(self, text: str) -> tuple[str, Path]:
        name = f"catalog_{uuid.uuid4().hex}"
        path = self.folder / f"{name}.py"
        path.write_text(HEAD + dedent(text).replace("UNIQUE", name), encoding="utf-8")
        self.names.append(name)
        importlib.invalidate_caches()
        return name, path


@pytest.fixture
def catalogs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Catalogs]:
    monkeypatch.syspath_prepend(str(tmp_path))
    made = Catalogs(tmp_path)
    yield made
    for name in made.names:
        sys.modules.pop(name, None)


# The statement at line 3 of the catalog, and what the message says after file and line.
ERRORS = {
    "an empty path": ("replace('', 'a.b')", "target must be a dotted path .* found ''"),
    "a path of one name": ("replace('f', 'a.b')", "target must be a dotted path .* found 'f'"),
    "a path with an empty part": ("replace('a..f', 'a.b')", "target must be a dotted path"),
    "a path that is no string": ("replace(len, 'a.b')", "target must be a dotted path"),
    "a path with a space": ("replace('a.f ', 'a.b')", "target must be a dotted path"),
    "an object for a replacement": ("replace('a.f', len)", "the replacement of 'a.f' must be a dotted path"),
    "a factory that is no path": ("wrap('a.f', lambda original, options: original)", "must be a dotted path"),
    "a malformed condition": (
        "replace('a.f', 'b.f', runtime_condition='no path')",
        "the runtime_condition of 'a.f' must be a dotted path",
    ),
    "a bare string of aliases": (
        "replace('a.f', 'b.f', aliases='a.g')",
        r"aliases of 'a.f' must be a tuple of strings, found 'a.g'; write \('a.g',\)",
    ),
    "a malformed alias": ("replace('a.f', 'b.f', aliases=('g',))", "an alias of 'a.f' must be a dotted path"),
    "a target among its aliases": ("replace('a.f', 'b.f', aliases=('a.f',))", "repeat a path"),
    "an alias twice": ("replace('a.f', 'b.f', aliases=('a.g', 'a.g'))", "repeat a path"),
    "an unknown scope": ("replace('a.f', 'b.f', scope='module')", "scope of 'a.f' must be None or 'global'"),
    "an id without a catalog": ("group('fast', replace('a.f', 'b.f'))", "a group id is 'catalog.group'"),
    "an id of three parts": ("group('a.b.c', replace('a.f', 'b.f'))", "a group id is 'catalog.group'"),
    "an id in capitals": ("group('A.b', replace('a.f', 'b.f'))", "a group id is 'catalog.group'"),
    "an empty id": ("group('', replace('a.f', 'b.f'))", "a group id is 'catalog.group'"),
    "an id that is no string": ("group(None, replace('a.f', 'b.f'))", "a group id is 'catalog.group'"),
    "no member": ("group('UNIQUE.a')", "needs members"),
    "a member that is none": ("group('UNIQUE.a', 'a.f')", "needs members"),
    "a member twice": ("group('UNIQUE.a', replace('a.f', 'b.f'), replace('a.f', 'b.g'))", "declares 'a.f' twice"),
    "a target that is another's alias": (
        "group('UNIQUE.a', replace('a.f', 'b.f'), replace('a.g', 'b.g', aliases=('a.f',)))",
        "declares 'a.f' twice",
    ),
    "itself as a dependency": (
        "group('UNIQUE.a', replace('a.f', 'b.f'), depends_on=('UNIQUE.a',))",
        "depends on itself",
    ),
    "a bare string of dependencies": (
        "group('UNIQUE.a', replace('a.f', 'b.f'), depends_on='UNIQUE.b')",
        "must be a tuple of strings",
    ),
    "options that are no dataclass": ("group('UNIQUE.a', wrap('a.f', 'b.f'), options=dict)", "must be a dataclass"),
    "an instance of options": (
        "group('UNIQUE.a', wrap('a.f', 'b.f'), options=dataclass(type('O', (), {}))())",
        "must be a dataclass",
    ),
    "a malformed check": (
        "group('UNIQUE.a', wrap('a.f', 'b.f'), compatibility_check='check')",
        "compatibility_check of group 'UNIQUE.a' must be a dotted path",
    ),
    "options for replace": (
        "group('UNIQUE.a', replace('a.f', 'b.f'), options=dataclass(type('O', (), {})))",
        "the options of group 'UNIQUE.a' reach nothing, since replace\\(\\) takes none; use wrap",
    ),
}


@pytest.mark.parametrize("case", ERRORS)
def test_what_cannot_be_meant_is_refused_with_file_and_line(catalogs: Catalogs, case: str) -> None:
    statement, expected = ERRORS[case]
    name, path = catalogs.write(statement)
    with pytest.raises(DeclarationError) as caught:
        Registry().load(name)
    message = str(caught.value)
    assert message.startswith(f"{path}:3: ")
    assert re.search(expected.replace("UNIQUE", name), message)
    assert "\n" not in message


def test_an_option_without_a_default_is_refused(catalogs: Catalogs) -> None:
    name, path = catalogs.write(
        "@dataclass\nclass O:\n    lr: float\n\ngroup('UNIQUE.a', wrap('a.f', 'b.f'), options=O)"
    )
    with pytest.raises(DeclarationError, match=re.escape(f"{path}:7: option 'lr' of group '{name}.a' has no default")):
        Registry().load(name)


def test_a_member_of_several_lines_is_named_by_its_own_line(catalogs: Catalogs) -> None:
    name, path = catalogs.write("group(\n    'UNIQUE.a',\n    replace('a.f', 'b.f'),\n    replace('a.f', 'b.g'),\n)")
    with pytest.raises(DeclarationError, match=re.escape(f"{path}:6: ")):
        Registry().load(name)


def test_the_same_declaration_twice_is_one_group(catalogs: Catalogs) -> None:
    first, _ = catalogs.write("group('shared_a.x', replace('a.f', 'b.f'))")
    registry = Registry()
    made = registry.group("a.x", replace("a.f", "b.f"), about=About(why="because"))
    assert registry.group("a.x", replace("a.f", "b.f"), about=About(why="because")) is made
    assert list(registry.groups) == ["a.x"]
    assert first


def test_another_declaration_under_a_known_id_names_both_places() -> None:
    registry = Registry()
    known = registry.group("a.x", replace("a.f", "b.f"))
    with pytest.raises(DeclarationError) as caught:
        registry.group("a.x", replace("a.f", "b.g"))
    assert f"is declared with another definition at {known.place}" in str(caught.value)
    assert str(caught.value).startswith(f"{__file__}:{known.place.line + 2}: ")


@pytest.mark.parametrize(
    "change",
    [
        {"depends_on": ("a.y",)},
        {"compatibility_check": "m.check"},
        {"about": About(why="other")},
    ],
    ids=lambda change: next(iter(change)),
)
def test_every_part_of_a_group_belongs_to_its_definition(change: dict[str, object]) -> None:
    registry = Registry()
    registry.group("a.x", replace("a.f", "b.f"))
    with pytest.raises(DeclarationError, match="another definition"):
        registry.group("a.x", replace("a.f", "b.f"), **change)  # type: ignore[arg-type]


def test_a_group_knows_where_it_was_declared_and_in_which_catalog(catalogs: Catalogs) -> None:
    name, path = catalogs.write("\nmember = wrap('a.f', 'b.f', stack=True)\ngroup('UNIQUE.a', member)")
    (found,) = Registry().load(name)
    assert (found.place.file, found.place.line, found.catalog) == (str(path), 5, name)
    assert (found.members[0].place.file, found.members[0].place.line) == (str(path), 4)


def test_a_registry_loads_what_a_catalog_declared_also_when_it_is_imported_already(catalogs: Catalogs) -> None:
    name, _ = catalogs.write("group('UNIQUE.a', replace('a.f', 'b.f'))")
    importlib.import_module(name)
    first, second = Registry(), Registry()
    assert [item.id for item in first.load(name)] == [f"{name}.a"]
    assert [item.id for item in second.load(name)] == [f"{name}.a"]
    assert first.get(f"{name}.a") is second.get(f"{name}.a")
    assert first.get("no.such") is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import module_that_is_not_there", "cannot be imported: ModuleNotFoundError"),
        ("raise RuntimeError('broken')", "cannot be imported: RuntimeError: broken"),
        ("x = 1", "declares no group"),
    ],
)
def test_a_catalog_that_cannot_be_used_is_told_in_one_sentence(catalogs: Catalogs, text: str, expected: str) -> None:
    name, _ = catalogs.write(text)
    with pytest.raises(OptimizationConfigError, match=f"catalog '{name}' .*{re.escape(expected)}"):
        Registry().load(name)


def test_a_catalog_that_is_not_there_is_told_in_one_sentence() -> None:
    with pytest.raises(OptimizationConfigError, match=r"catalog 'no_such_package\.catalog' cannot be imported"):
        Registry().load("no_such_package.catalog")


def test_the_public_functions_declare_in_the_process_s_registry_under_the_calling_module() -> None:
    made = group("tests_declarations.public", wrap("a.f", "b.f"))
    assert made.catalog == __name__
    assert made.place.file == __file__


def test_declared_data_cannot_be_changed() -> None:
    made = declare("a.x", replace("a.f", "b.f"))
    with pytest.raises(AttributeError):
        made.id = "a.y"  # type: ignore[misc]
    with pytest.raises(AttributeError):
        made.members[0].target = "a.g"  # type: ignore[misc]


def test_declaring_imports_neither_torch_nor_hydra_nor_yaml(catalogs: Catalogs) -> None:
    name, path = catalogs.write("group('UNIQUE.a', replace('torch.nn.Linear.forward', 'UNIQUE.f'))")
    code = f"import sys; sys.path.insert(0, {str(path.parent)!r}); import {name}; print(sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.replace("'", "").strip("[]\n").split(", "))
    assert name in loaded
    assert not loaded & {"torch", "hydra", "omegaconf", "yaml", "numpy"}
