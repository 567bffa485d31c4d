# SPDX-License-Identifier: Apache-2.0
"""Several models in one environment: each config loads whatever is installed, and a broken one is alone with that."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.bevformer_use import stand_in
from tests.bevformer_use.conftest import Train

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = ROOT / "conf" / "optimization"
# Of the models that turbo-train knows, those with groups of their own.
MODELS = sorted(
    path.stem for path in (ROOT / "conf" / "model").glob("*.yaml") if (CONFIGS / f"{path.stem}.yaml").exists()
)
CATALOGS = {
    model: yaml.safe_load((CONFIGS / f"{model}.yaml").read_text(encoding="utf-8"))["catalogs"] for model in MODELS
}

# In one process: all configs together; then, in a fork each, with one catalog whose import raises.
LOAD = """
import json, os, sys
from turbo_hydra import OptimizationConfigError, Registry
from turbo_hydra.config import OptimizationConfigCatalog, check_names, load_catalogs

models, catalogs = json.loads(sys.argv[1])
configs = OptimizationConfigCatalog()

class Broken:
    def __init__(self, name):
        self.name = name
    def find_spec(self, name, path=None, target=None):
        if name == self.name:
            raise RuntimeError("somebody's mistake")

def load(model, registry=None):
    config = configs.load(configs.model_path(model))
    made = load_catalogs(config, registry)
    check_names(config, made)
    return sorted(id for id in config.groups if made.get(id) is not None) == sorted(config.groups)

def without(catalog):
    sys.meta_path.insert(0, Broken(catalog))
    told = {}
    for model in models:
        try:
            told[model] = load(model)
        except OptimizationConfigError as error:
            told[model] = str(error)
    return told

found = {}
for catalog in catalogs:
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.write(writing, json.dumps(without(catalog)).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        found[catalog] = json.loads(pipe.read())
together = Registry()
told = {model: load(model, together) for model in models}
heavy = sorted({"torch", "transformers", "mmcv", "lerobot", "openpi"} & set(sys.modules))
print(json.dumps({"broken": found, "together": told, "heavy": heavy, "groups": len(together.groups)}))
"""


@pytest.fixture(scope="module")
def loaded() -> dict[str, Any]:
    """What a process without any of the models found."""
    catalogs = sorted({name for names in CATALOGS.values() for name in names})
    done = subprocess.run(
        [sys.executable, "-c", LOAD, json.dumps([MODELS, catalogs])],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_there_is_more_than_one_model() -> None:
    assert {"bevformer", "openpi", "tiny_vla"} <= set(MODELS)


def test_all_configs_load_together_where_none_of_the_models_is_installed(loaded: dict[str, Any]) -> None:
    assert loaded["together"] == dict.fromkeys(MODELS, True)
    assert loaded["heavy"] == []
    assert loaded["groups"] > 20


def test_a_broken_catalog_breaks_the_configs_that_name_it_and_no_other(loaded: dict[str, Any]) -> None:
    assert loaded["broken"]
    for catalog, told in loaded["broken"].items():
        for model, found in told.items():
            if catalog in CATALOGS[model]:
                assert f"catalog '{catalog}' cannot be imported: RuntimeError: somebody's mistake" in found
            else:
                assert found is True, (catalog, model)


def sites(folder: Path) -> Iterator[tuple[str, str]]:
    """Each model's variable for its checkout, and a checkout."""
    for model in MODELS:
        repo = yaml.safe_load((ROOT / "conf" / "model" / f"{model}.yaml").read_text(encoding="utf-8")).get("repo") or ""
        if "oc.env:" in repo:
            yield repo.partition("oc.env:")[2].split(",")[0].rstrip("}"), str(folder)


@pytest.mark.slow
def test_with_one_model_installed_its_groups_apply_and_those_of_another_are_blocked_in_a_sentence_each(
    train: Train, tmp_path: Path
) -> None:
    site = stand_in.write(tmp_path / "site", stand_in.SITE)
    checkout = stand_in.write(tmp_path / "checkout", {**stand_in.CHECKOUT, "nothing.py": "print('ran')\n"})
    for model, applied in (("bevformer", True), ("openpi", False)):
        done = train(
            *(f"model={model}", "model.entry=nothing.py", "measure=off", "optimization.force=['*']"),
            f"hydra.run.dir={model}",
            site=site,
            **dict(sites(checkout)),
        )
        assert done.returncode == 0, done.stderr
        assert "ran" in done.stdout
        assert "Traceback" not in done.stderr
        report = json.loads((tmp_path / model / "turbo" / "report.json").read_text("utf-8"))
        statuses = {entry["group"]: entry["status"] for entry in report["execution"]}
        for id in ("mmcv.compat_extension", "mmcv.compat_cpu", "bevformer.compat_spawn"):
            assert statuses.get(id) == ("applied" if applied else None), id
        assert statuses.get("openpi.transformers_replace") == (None if applied else "blocked")


def test_a_missing_checkout_is_one_sentence_before_anything_starts(train: Train, tmp_path: Path) -> None:
    done = train("model=bevformer")
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.splitlines()
    assert "'model.repo' is not set: give model.repo=..., or set the environment variable BEVFORMER_REPO" in line
    done = train("model=bevformer", BEVFORMER_REPO=str(tmp_path))
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.splitlines()
    assert "'model.entry' is tools/train.py, and there is no file" in line
    assert not list(tmp_path.rglob("ranks"))
