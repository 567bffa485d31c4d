# SPDX-License-Identifier: Apache-2.0
"""What people may type, and what it composes to."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_module
from hydra.core.global_hydra import GlobalHydra
from hydra.core.plugins import Plugins
from hydra.errors import HydraException
from omegaconf import OmegaConf

from hydra_plugins.turbo_hydra.torchrun_launcher import TorchrunLauncher
from turbo_hydra.cli.messages import sentence
from turbo_hydra.config import OptimizationConfig, OptimizationConfigCatalog, hydra_schema
from turbo_hydra.config.yaml_reader import Document
from turbo_hydra.engine.errors import OptimizationConfigError

MODELS = Path(__file__).resolve().parents[2] / "conf" / "model"
OPTIMIZATION = MODELS.parent / "optimization"


@pytest.fixture(autouse=True)
def _hydra() -> Iterator[None]:
    GlobalHydra.instance().clear()
    Plugins.instance().register(TorchrunLauncher)
    hydra_schema.register()
    with initialize_config_module("turbo_hydra.conf", version_base="1.3"):
        yield


def composed(*overrides: str) -> dict[str, Any]:
    found = OmegaConf.to_container(compose("train", list(overrides)), resolve=True)
    assert isinstance(found, dict)
    return {str(key): value for key, value in found.items()}


def groups(*overrides: str) -> dict[str, bool]:
    data = composed(*overrides)["optimization"]
    data.pop("config")
    data["evidence"] = None
    config = OptimizationConfig.from_document(Document(data, "optimization"), None)
    return {id.removeprefix("tiny_vla."): on for id, on in config.groups.items() if id.startswith("tiny_vla.")}


def refused(*overrides: str) -> str:
    with pytest.raises((HydraException, OptimizationConfigError)) as caught:
        groups(*overrides)
    # An unknown model is answered with the list of those that there are.
    text = sentence(caught.value).partition("\nThere are:")[0]
    assert "\n" not in text
    return text


def test_the_embedded_model_is_the_default_and_brings_its_optimizations() -> None:
    data = composed()
    assert data["model"]["name"] == "tiny_vla"
    assert data["runtime"]["ranks"] == 1
    assert data["optimization"]["metadata"]["id"] == "model.tiny_vla"
    assert set(data) == {"model", "runtime", "optimization", "measure", "ablation"}


def test_a_model_alone_selects_its_optimization_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Models whose repository the user has somewhere name a variable for it.
    monkeypatch.setenv("OPENPI_REPO", str(tmp_path))
    for model in MODELS.glob("*.yaml"):
        # Not resolved: a model may refer to the run's folder, which there is in a run only.
        found = compose("train", [f"model={model.stem}"])["optimization"]["model"]["name"]
        assert found == (model.stem if model.stem in OptimizationConfigCatalog().names() else None)


def test_a_model_without_an_optimization_config_has_no_group() -> None:
    assert composed("model=custom")["optimization"]["groups"] == {}
    assert composed("model=custom", "optimization=common")["optimization"]["groups"] != {}


@pytest.mark.parametrize("word", ["false", "off", "no", "False", "OFF"])
def test_a_group_is_switched_off_by_any_word_for_it(word: str) -> None:
    assert groups(f"optimization.groups.tiny_vla.rope_once={word}")["rope_once"] is False


@pytest.mark.parametrize("word", ["true", "on", "yes"])
def test_a_group_is_switched_on_by_any_word_for_it(word: str) -> None:
    found = groups("optimization=tiny_vla/all_off", f"optimization.groups.tiny_vla.rope_once={word}")
    assert [name for name, on in found.items() if on] == ["rope_once"]


def test_only_the_named_group_changes() -> None:
    before, after = groups(), groups("optimization.groups.tiny_vla.rope_once=off")
    assert {name for name in before if before[name] != after[name]} == {"rope_once"}


def test_the_preset_names_every_group_of_the_config() -> None:
    found = groups("optimization=tiny_vla/all_off")
    assert found
    assert set(found) == set(groups())
    assert not any(found.values())
    assert not any(composed("optimization=tiny_vla/all_off")["optimization"]["groups"]["torch"].values())


def test_a_group_of_another_catalog_needs_no_plus() -> None:
    assert composed("optimization.groups.mine.fast=on")["optimization"]["groups"]["mine"] == {"fast": "on"}


@pytest.mark.parametrize(
    "override", ["~optimization.groups.tiny_vla.rope_once", "optimization.groups.tiny_vla.rope_once=null"]
)
def test_a_group_that_is_deleted_or_null_is_not_named(override: str) -> None:
    assert "rope_once" not in groups(override)


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("optimization.groups.tiny_vla.rope_once=maybe", "must be true or false"),
        ("optimization.groups.tiny_vla.rope_once=0", "must be true or false"),
        ("optimization.groups.tiny_vla.rope_once={enabled: true}", "must be true or false"),
        ("optimization.groups.tiny_vla.rope_once.window=3", "must be true or false"),
        ("optimization.groups.tiny_vla=all_off", "one group is optimization.groups.tiny_vla.GROUP=off"),
        ("optimization.groups.tiny_vla=false", "one group is optimization.groups.tiny_vla.GROUP=off"),
        ("optimization.strct=true", "unknown setting 'optimization.strct'; did you mean 'optimization.strict'?"),
        ("+optimization.strct=true", "strct"),
        ("optimization.strict=maybe", "'optimization.strict=maybe' does not fit"),
        ("optimization.shadow.calls=x", "'optimization.shadow.calls=x' does not fit"),
        ("runtime.rank=2", "unknown setting 'runtime.rank'; did you mean 'runtime.ranks'?"),
        ("runtime.ranks=two", "'runtime.ranks=two' does not fit"),
        ("model=tiny_vl", "there is no model=tiny_vl; did you mean 'tiny_vla'?"),
        ("runtime=cuda_8gpus", "there is no runtime=cuda_8gpus; did you mean 'cuda_8gpu'?"),
        ("optimization.disable=rope", "'optimization.disable=rope' does not fit"),
        ("optimization.groups.tiny_vla.rope_once=true,false", "has several values: add -m to run each"),
        ("model.nam=x", "unknown setting 'model.nam'; did you mean 'model.name'?"),
    ],
)
def test_refusals(override: str, said: str) -> None:
    assert said in refused(override)


def test_globs_are_values() -> None:
    data = composed("optimization.disable=[tiny_vla.*,torch.fused_adamw]", "optimization.only=[tiny_vla.rope_once]")
    assert data["optimization"]["disable"] == ["tiny_vla.*", "torch.fused_adamw"]
    assert data["optimization"]["only"] == ["tiny_vla.rope_once"]


def test_options_are_a_tree_of_their_own_and_a_toggle_keeps_them() -> None:
    data = composed("optimization.options.tiny_vla.rope_once.window=64", "optimization.groups.tiny_vla.rope_once=true")
    assert data["optimization"]["options"]["tiny_vla"]["rope_once"] == {"window": 64}


def test_recipes_are_options_of_a_config_group() -> None:
    data = composed("model=custom", "optimization/recipe=[common]")
    assert data["optimization"]["groups"].keys() == {"torch"}
    assert data["optimization"]["groups"]["torch"]["fused_adamw"] is True


def test_variables_and_arguments_take_new_names_without_plus() -> None:
    data = composed(
        "runtime.environment.set.NCCL_DEBUG=INFO",
        "runtime.environment.set.new_name=1",
        "model.args.lr=1e-4",
        "model.args.optim.name=adam",
        "model.args.batch-size=4",
        "model.args.flag=true",
    )
    assert data["runtime"]["environment"]["set"] == {"NCCL_DEBUG": "INFO", "new_name": 1}
    args = data["model"]["args"]
    assert (args["lr"], args["optim"], args["batch-size"], args["flag"]) == (1e-4, {"name": "adam"}, 4, True)


@pytest.mark.parametrize(
    ("name", "ranks", "accelerator"),
    [
        ("local", 1, "auto"),
        ("cpu_2rank", 2, "cpu"),
        ("cuda_1gpu", 1, "cuda"),
        ("cuda_8gpu", 8, "cuda"),
        ("hcu_8card", 8, "hcu"),
    ],
)
def test_runtimes(name: str, ranks: int, accelerator: str) -> None:
    runtime = composed(f"runtime={name}")["runtime"]
    assert (runtime["ranks"], runtime["accelerator"]) == (ranks, accelerator)


def test_an_experiment_is_a_sweep_of_its_own() -> None:
    overrides = ["experiment=tiny_vla_leave_one_out"]
    hydra = compose("train", overrides, return_hydra_config=True).hydra
    assert hydra.mode.name == "MULTIRUN"
    (key, rows), *rest = hydra.sweeper.params.items()
    assert (key, rest) == ("optimization.disable", [])
    left_out = re.findall(r"\[([^\]]*)\]", rows)
    assert left_out[0] == ""
    on = {id for id, state in OptimizationConfig.from_file(OPTIMIZATION / "tiny_vla.yaml").groups.items() if state}
    # With one rank there is no DDP whose state could matter.
    assert set(left_out[1:]) == on - {"tiny_vla.ddp_state"}


@pytest.mark.parametrize(
    ("option", "head", "said"),
    [
        (
            "optimization=mine",
            "extends: [common]",
            r"'extends' is the form of older files: write `defaults: \[NAME@_here_, _self_\]` at the top instead; or",
        ),
        ("optimization=mine", "group: {}", "optimization/mine: unknown key 'group'; did you mean 'groups'"),
        (
            "optimization/recipe=[mine]",
            "# @package optimization\nextends: [common]",
            r"optimization/recipe/mine: 'extends' is the form of older files: write `defaults: \[NAME, _self_\]`",
        ),
        ("optimization/recipe=[mine]", "groups: {}", "file begins with the line `# @package optimization`"),
    ],
)
def test_what_a_file_of_somebody_has_wrong_is_told(tmp_path: Path, option: str, head: str, said: str) -> None:
    name = "recipe/mine.yaml" if "recipe" in option else "mine.yaml"
    path = tmp_path / "optimization" / name
    path.parent.mkdir(parents=True)
    path.write_text(head + "\n", encoding="utf-8")
    assert re.search(said, refused(f"hydra.searchpath=[file://{tmp_path}]", option))
