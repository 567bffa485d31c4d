# SPDX-License-Identifier: Apache-2.0
"""The catalog, its two configs and its recipes say the same."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from turbo_hydra import Registry
from turbo_hydra.config import OptimizationConfig
from turbo_hydra.engine.declarations import Group
from turbo_hydra.engine.objects import load_object

CATALOG = "turbo_hydra.catalogs.models.lerobot"
CONF = Path(__file__).resolve().parents[2] / "conf" / "optimization"
CONFIGS = {
    # Groups that a config has not: those for the other release of lerobot.
    "lerobot_pi05": {"transformers_names", "conditional_norm"},
    "lerobot_044": {"compat_python311", "ada_rms_norm"},
}
VERSIONS = {
    "lerobot_pi05": {"lerobot": "0.6.1", "transformers": "5.5.4", "torch": "2.13.0"},
    "lerobot_044": {"lerobot": "0.4.4", "transformers": "4.57.6", "torch": "2.13.0"},
}


def declared() -> dict[str, Group]:
    registry = Registry()
    registry.load(CATALOG)
    return dict(registry.groups)


def built_in(name: str) -> OptimizationConfig:
    return OptimizationConfig.from_file(CONF / f"{name}.yaml")


def test_importing_the_catalog_imports_neither_torch_nor_the_model() -> None:
    code = (
        f"import sys\n__import__({CATALOG!r})\n"
        "print(sorted({'torch', 'numpy', 'lerobot', 'transformers', 'torchvision', 'kernels'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", CONFIGS)
def test_a_config_has_the_groups_of_its_recipe_and_its_release(name: str) -> None:
    recipe = yaml.safe_load((CONF / "recipe" / f"{name}.yaml").read_text())
    assert {f"lerobot.{group}": on for group, on in recipe["groups"]["lerobot"].items()} == dict(built_in(name).groups)
    assert set(declared()) - set(built_in(name).groups) == {f"lerobot.{group}" for group in CONFIGS[name]}


@pytest.mark.parametrize("name", CONFIGS)
def test_the_small_model_is_off_and_all_else_is_on(name: str) -> None:
    assert {id for id, on in built_in(name).groups.items() if not on} == {"lerobot.tiny"}


@pytest.mark.parametrize("name", CONFIGS)
def test_every_target_has_evidence_of_what_it_was_validated_with(name: str) -> None:
    config = built_in(name)
    evidence = config.selection().evidence
    for id in config.groups:
        group = declared()[id]
        for member in group.members if not group.is_import_group else ():
            records = evidence[member.target]
            assert any(record.version == VERSIONS[name].get(record.dist or "") for record in records), member.target


@pytest.mark.parametrize("id", declared())
def test_replacements_are_there(id: str) -> None:
    group = declared()[id]
    assert group.about is not None
    for member in group.members:
        if member.kind != "replace_import" or member.source:
            assert callable(load_object(member.replacement)), member.replacement
    assert group.about.until or group.purpose == "optimization", "what only makes it run says when it can go"
    assert all(field.metadata["help"] for field in getattr(group.options, "__dataclass_fields__", {}).values())
