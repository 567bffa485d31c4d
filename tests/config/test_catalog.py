# SPDX-License-Identifier: Apache-2.0
"""Configs that extend others, without Hydra."""

from __future__ import annotations

from pathlib import Path

import pytest

from turbo_hydra.config import OptimizationConfigCatalog
from turbo_hydra.engine.errors import OptimizationConfigError, OptimizationConfigNotFoundError

HEADER = "schema_version: turbo_hydra/optimization-config/v1\nkind: OptimizationConfig\n"


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(HEADER + text, encoding="utf-8")
    return path


def test_parents_come_first_and_the_file_itself_last(tmp_path: Path) -> None:
    write(
        tmp_path,
        "base.yaml",
        "metadata: {id: base}\ncatalogs: [c.base]\nevidence: base.json\ngroups: {a: {x: true, y: true}}\n"
        "options: {a: {x: {lr: 1, mode: fast}}}\ncompatibility: {dependencies: {torch: '>=2'}, allow_dirty: false}\n"
        "disable: [a.y]\nstrict: true\n",
    )
    child = write(
        tmp_path,
        "sub/child.yaml",
        "extends: ../base.yaml\ncatalogs: [c.child]\nevidence: child.json\ngroups: {a: {y: off}, b: {z: true}}\n"
        "options: {a: {x: {lr: 2}}}\ncompatibility: {dependencies: {numpy: '>=1'}}\ndisable: []\n",
    )
    found = OptimizationConfigCatalog().load(child)
    assert found.path == child
    assert found.metadata.id == "base"
    assert found.catalogs == ("c.base", "c.child")
    assert [path.name for path in found.evidence] == ["base.json", "child.json"]
    assert all(path.is_absolute() for path in found.evidence)
    assert found.groups == {"a.x": True, "a.y": False, "b.z": True}
    assert found.options == {"a.x": {"lr": 2, "mode": "fast"}}
    assert found.compatibility.dependencies == {"torch": ">=2", "numpy": ">=1"}
    assert not found.compatibility.allow_dirty
    assert found.disable == ()
    assert found.strict


def test_a_name_is_a_config_of_the_catalog(tmp_path: Path) -> None:
    write(tmp_path / "configs", "other_model.yaml", "groups: {a: {x: true}}\n")
    child = write(tmp_path, "child.yaml", "extends: [Other-Model]\n")
    assert OptimizationConfigCatalog([tmp_path / "configs"]).load(child).groups == {"a.x": True}


def test_later_parents_win_over_earlier_ones(tmp_path: Path) -> None:
    write(tmp_path, "one.yaml", "groups: {a: {x: true, y: true}}\n")
    write(tmp_path, "two.yaml", "groups: {a: {x: false}}\n")
    child = write(tmp_path, "child.yaml", "extends: [one.yaml, two.yaml]\n")
    assert OptimizationConfigCatalog().load(child).groups == {"a.x": False, "a.y": True}


def test_a_circle_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "one.yaml", "extends: two.yaml\n")
    write(tmp_path, "two.yaml", "extends: one.yaml\n")
    with pytest.raises(OptimizationConfigError, match=r"two\.yaml:3: 'one.yaml' extends this file in turn"):
        OptimizationConfigCatalog().load(tmp_path / "one.yaml")


def test_a_parent_that_is_missing_is_told_with_the_line(tmp_path: Path) -> None:
    child = write(tmp_path, "child.yaml", "extends: [nowhere]\n")
    with pytest.raises(OptimizationConfigNotFoundError, match=rf"{child}:3: 'nowhere' is neither the file"):
        OptimizationConfigCatalog().load(child)


def test_a_fault_in_a_parent_is_told_where_it_stands(tmp_path: Path) -> None:
    base = write(tmp_path, "base.yaml", "groups:\n  a: {x: maybe}\n")
    child = write(tmp_path, "child.yaml", "extends: base.yaml\n")
    with pytest.raises(OptimizationConfigError, match=rf"{base}:4: 'groups.a.x'"):
        OptimizationConfigCatalog().load(child)


def test_every_config_that_ships_loads() -> None:
    catalog = OptimizationConfigCatalog()
    for path in (catalog.common_path(), *map(catalog.model_path, catalog.names())):
        found = catalog.load(path)
        assert found.catalogs
        assert found.groups
        found.selection()
