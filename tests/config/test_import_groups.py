# SPDX-License-Identifier: Apache-2.0
"""Evidence is that of the modules that import groups serve, as in a run; read from files and by importing alike."""

from __future__ import annotations

import importlib.metadata
from typing import TYPE_CHECKING, Any

import pytest

from turbo_hydra.config import OptimizationConfig
from turbo_hydra.config.checking import CheckResult, check
from turbo_hydra.config.drift import walk
from turbo_hydra.config.generating import Generated, Request, generate
from turbo_hydra.engine.canonical import source_hash
from turbo_hydra.engine.errors import OptimizationConfigError

if TYPE_CHECKING:
    from tests.config.conftest import Project

REPLACED = (
    "def attend(query, key):\n    return query * key\n\ndef late_name(x):\n    return [x]\n\nclass Block:\n    pass\n"
)


@pytest.fixture
def serving(project: Project) -> Project:
    """Add the file that a group serves, and a recipe with import groups."""
    (project.repo / "replace").mkdir()
    (project.repo / "replace" / "layers.py").write_text(REPLACED, encoding="utf-8")
    project.git("add", "-A")
    project.git("commit", "-qm", "a file to serve")
    return project


def make(project: Project, groups: str, **settings: Any) -> Generated:
    project.recipe.write_text(
        "schema_version: turbo_hydra/recipe/v1\nkind: OptimizationRecipe\nmodel: {name: demo}\n"
        f"catalogs: [demo_served]\ngroups: {{served: {{{groups}}}}}\n",
        encoding="utf-8",
    )
    request = Request(project.recipe, project.repo, project.output, commit=project.commit, force=True, **settings)
    return generate(request)


def checked(project: Project, static: bool) -> CheckResult:
    return check(OptimizationConfig.from_file(project.output), project.repo, static)


def evidence(project: Project) -> dict[str, Any]:
    return dict(OptimizationConfig.from_file(project.output).selection().evidence)


@pytest.mark.parametrize("static", [True, False])
def test_a_file_of_the_repository_that_is_served_is_the_evidence(serving: Project, static: bool) -> None:
    make(serving, "attend: on", static=static)
    (record,) = evidence(serving)["demo_model.layers.attend"]
    assert record.source == source_hash("def attend(query, key):\n    return query * key\n")
    assert (record.dist, record.chain, record.file) == (None, (), "turbo_hydra/served.file/demo_model.layers.py")
    assert {item.status for item in checked(serving, True).targets} == {"match"}
    assert {item.status for item in checked(serving, False).targets} == {"match"}
    serving.edit("query * key", "key * query", "replace/layers.py")
    for way in (True, False):
        assert [item.status for item in checked(serving, way).targets] == ["changed"]


@pytest.mark.parametrize("static", [True, False])
def test_a_text_made_from_an_installed_file_belongs_to_its_version(serving: Project, static: bool) -> None:
    make(serving, "rich: on", static=static)
    (record,) = evidence(serving)["rich.filesize.decimal"]
    assert (record.dist, record.version) == ("rich", importlib.metadata.version("rich"))
    assert record.file == "turbo_hydra/served.installed/rich.filesize.py"
    with_group = record.source
    make(serving, "rich: off, installed: off", static=static)
    assert evidence(serving)["rich.filesize.decimal"][0].source != with_group


@pytest.mark.parametrize("static", [True, False])
def test_names_that_groups_add_lead_to_their_objects(serving: Project, static: bool) -> None:
    make(serving, "early: on, noted: on", static=static)
    assert evidence(serving)["demo_model.early_name"][0].file == "demo_model/layers.py"
    assert {item.status for item in checked(serving, static).targets} == {"match"}


def test_a_stand_in_for_an_absent_package_is_out_of_sight_and_not_missing(serving: Project) -> None:
    done = make(serving, "call: on", static=True)
    assert done.unseen["no_such_package.call"].startswith("group 'served.absent' serves a stand-in")


@pytest.mark.parametrize("static", [True, False])
def test_a_group_that_cannot_serve_is_told(serving: Project, static: bool) -> None:
    done = make(serving, "broken: on, early: on", static=static)
    assert "ValueError: it is broken" in done.unseen["demo_model.early_name"]


def test_a_module_that_this_command_uses_itself_is_served_to_readers_of_files_only(serving: Project) -> None:
    make(serving, "own: on", static=True)
    with pytest.raises(OptimizationConfigError, match=r"'served\.own' serves 'yaml', which turbo-opt itself"):
        make(serving, "own: on", static=False)


@pytest.mark.parametrize(
    ("groups", "said"),
    [
        ("file: on, free: on", "the second changes what the first serves; let it depend on the first"),
        ("file: on, broken: on", "both declare 'demo_model.layers', different changes"),
    ],
)
def test_groups_that_change_what_another_serves_depend_on_it(serving: Project, groups: str, said: str) -> None:
    with pytest.raises(OptimizationConfigError, match=said):
        make(serving, groups, static=True)


def test_what_runs_before_an_import_takes_no_place(serving: Project) -> None:
    assert make(serving, "attend: on, noted: on", static=False).records == 1


def test_a_walk_sees_the_file_that_is_served_at_each_commit(serving: Project) -> None:
    make(serving, "attend: on", static=True)
    start = serving.commit
    serving.edit("return query @ key", "return key @ query")
    serving.edit("query * key", "key * query", "replace/layers.py")
    serving.git("rm", "-q", "replace/layers.py")
    serving.git("commit", "-qm", "gone")
    drift = walk(OptimizationConfig.from_file(serving.output), serving.repo, f"{start}..HEAD")
    assert [item.status for item in drift.changes] == ["changed", "unseen"]
    assert "+    return key * query" in drift.changes[0].diff
    assert "cannot serve 'demo_model.layers': FileNotFoundError" in drift.targets[0].detail
