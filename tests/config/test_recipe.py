# SPDX-License-Identifier: Apache-2.0
"""Recipes, and recipes made of recipes as Hydra composes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_module
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf

import turbo_hydra
from turbo_hydra.config import hydra_schema
from turbo_hydra.config.recipe import Recipe
from turbo_hydra.engine.errors import OptimizationConfigError, OptimizationConfigNotFoundError

HEAD = "# @package optimization\nschema_version: turbo_hydra/recipe/v1\nkind: OptimizationRecipe\n"


# What the recipe that is named says by itself.
SHIPPED = Recipe.from_file(
    Path(turbo_hydra.__file__).parent / "conf" / "optimization" / "recipe" / "common.yaml"
).groups


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / "optimization" / "recipe" / f"{name}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(HEAD + text, encoding="utf-8")
    return path


@pytest.fixture
def both(tmp_path: Path) -> Path:
    """Make a recipe that names one that ships and one beside it."""
    write(tmp_path, "mine", "catalogs: [c.mine]\ngroups: {torch: {fused_adamw: false}, mine: {x: true}}\n")
    return write(
        tmp_path,
        "both",
        "defaults: [common, /optimization/recipe/mine, _self_]\nmetadata: {id: both}\ncatalogs: [c.both]\n"
        "groups: {mine: {y: true}}\noptions: {mine: {y: {lr: 1}}}\n",
    )


def test_recipes_of_a_defaults_list_are_merged_in_order(both: Path) -> None:
    found = Recipe.from_file(both)
    assert found.groups == {**SHIPPED, "torch.fused_adamw": False, "mine.x": True, "mine.y": True}
    assert found.catalogs == ("turbo_hydra.catalogs.torch", "c.mine", "c.both")
    assert found.metadata.id == "both"
    assert found.options == {"mine.y": {"lr": 1}}


def test_hydra_composes_the_same_groups(both: Path) -> None:
    GlobalHydra.instance().clear()
    hydra_schema.register()
    folder = both.parents[2]
    with initialize_config_module("turbo_hydra.conf", version_base="1.3"):
        overrides = [f"hydra.searchpath=[file://{folder}]", "model=custom", "optimization/recipe=[both]"]
        composed: Any = OmegaConf.to_container(compose("train", overrides).optimization.groups)
    groups = Recipe.from_file(both).groups
    assert composed["torch"]["fused_adamw"] is False
    assert composed["mine"] == {"x": True, "y": True}
    assert groups == {f"{catalog}.{name}": on for catalog, names in composed.items() for name, on in names.items()}


@pytest.mark.parametrize(
    ("defaults", "said"),
    [
        ("[common]", "yaml:4: a recipe's defaults list says where the recipe itself stands: add _self_"),
        ("[none_such, _self_]", "yaml:4: there is no recipe 'none_such'"),
        ("['optional x', _self_]", "yaml:4: the list 'defaults' of a recipe names recipes, found 'optional x'"),
        ("[one, _self_]", "recipe 'one' names this one in turn"),
        ("[{override x: y}, _self_]", "'defaults.0' must be a string"),
    ],
)
def test_refusals(tmp_path: Path, defaults: str, said: str) -> None:
    path = write(tmp_path, "one", f"defaults: {defaults}\ngroups: {{}}\n")
    with pytest.raises(OptimizationConfigError, match=said.replace("[", r"\[")):
        Recipe.from_file(path)


def test_a_missing_recipe_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(OptimizationConfigNotFoundError):
        Recipe.from_file(tmp_path / "none.yaml")


def test_a_fault_is_told_in_the_file_where_it_stands(tmp_path: Path) -> None:
    fault = write(tmp_path, "fault", "groups: {a: {b: maybe}}\n")
    path = write(tmp_path, "one", "defaults: [fault, _self_]\n")
    with pytest.raises(OptimizationConfigError, match=f"{fault}:4: 'groups.a.b' must be"):
        Recipe.from_file(path)


def test_a_recipe_of_the_older_form_is_understood_and_told_how_it_is_written_now(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path, "base", "groups: {a: {b: on, c: on}}\n")
    path = write(tmp_path, "old", "extends: base\ngroups: {a: {c: off}}\n")
    with caplog.at_level("WARNING"):
        found = Recipe.from_file(path)
    assert found.groups == {"a.b": True, "a.c": False}
    assert [file.name for file in found.files] == ["base.yaml", "old.yaml"]
    (message,) = (record.getMessage() for record in caplog.records)
    assert message.endswith("old.yaml:4: 'extends' is the form of older recipes; Hydra's is `defaults: [base, _self_]`")
    both = write(tmp_path, "both", "extends: base\ndefaults: [base, _self_]\n")
    with pytest.raises(OptimizationConfigError, match="'extends' and 'defaults' both name recipes"):
        Recipe.from_file(both)
