# SPDX-License-Identifier: Apache-2.0
"""The table of families is what is declared, what is recorded, and what the recipe delivers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from turbo_hydra import Registry
from turbo_hydra.catalogs.transformers.families import DECODERS, ENCODERS
from turbo_hydra.config import OptimizationConfig, OptimizationConfigCatalog
from turbo_hydra.config.evidence_file import Evidence
from turbo_hydra.config.recipe import Recipe
from turbo_hydra.engine.declarations import Group
from turbo_hydra.engine.objects import load_object

CATALOG = "turbo_hydra.catalogs.transformers"
CONF = Path(__file__).resolve().parents[2] / "conf" / "optimization"
VERSIONS = {"4.53.2", "5.24.0"}


def declared() -> dict[str, Group]:
    registry = Registry()
    registry.load(CATALOG)
    return dict(registry.groups)


@pytest.fixture(scope="module")
def config() -> OptimizationConfig:
    catalog = OptimizationConfigCatalog()
    return catalog.load(catalog.model_path("transformers"))


@pytest.fixture(scope="module")
def evidence() -> Evidence:
    return Evidence.read(CONF / "transformers.evidence.json")


def test_every_family_has_the_groups_that_its_row_says() -> None:
    expected = {"attention", "paligemma_loss"}
    for family in DECODERS:
        kinds = ["rms_norm", "mlp", "rotary", "loss"]
        kinds += ["rotary_cache"] * family.one_rotation + ["eager_attention"] * family.plain_attention
        expected |= {f"{family.name}_{kind}" for kind in kinds}
    expected |= {f"{encoder.name}_{kind}" for encoder in ENCODERS for kind in ("mlp", "eager_attention")}
    assert {id.partition(".")[2] for id in declared()} == expected


def test_no_family_is_imported_for_its_groups() -> None:
    assert all(member.late for group in declared().values() for member in group.members)


def test_replacements_exist() -> None:
    for group in declared().values():
        for member in group.members:
            assert callable(load_object(member.replacement)), member.replacement


def test_the_config_is_what_the_recipe_delivers(config: OptimizationConfig) -> None:
    recipe = Recipe.from_file(CONF / "recipe" / "transformers.yaml")
    assert config.groups == recipe.groups
    assert set(config.groups) == set(declared())


def test_both_generations_of_the_library_are_recorded(evidence: Evidence) -> None:
    targets = {member.target for group in declared().values() for member in group.members}
    assert set(evidence.targets) == targets
    for target in targets:
        versions = {record.version for record in evidence.targets[target] if record.dist == "transformers"}
        assert versions >= VERSIONS, target


def test_listing_the_groups_imports_neither_torch_nor_the_library() -> None:
    code = f"import {CATALOG}, sys; raise SystemExit(sum(name in sys.modules for name in ('torch', 'transformers')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
