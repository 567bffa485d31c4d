# SPDX-License-Identifier: Apache-2.0
"""Two catalogs with groups of the same name are composed: of each pair at most one is on, and the other says so."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from turbo_hydra import Registry
from turbo_hydra.engine.declarations import Group

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("fused_adamw", "ddp_state", "clip_grad")
MODELS = {"openpi": "turbo_hydra.catalogs.models.openpi", "tiny_vla": "turbo_hydra.catalogs.models.tiny_vla"}

PLAN = """
import json, sys
from turbo_hydra import Registry
from turbo_hydra.engine.plan import prepare
from turbo_hydra.engine.selection import Selection

catalogs, ids, disable = json.loads(sys.argv[1])
registry = Registry()
for catalog in catalogs:
    registry.load(catalog)
selection = Selection(groups=dict.fromkeys(ids, True), force=("*",), disable=tuple(disable))
plan = prepare(registry, selection)
print(json.dumps({id: [plan.groups[id].decision, plan.groups[id].reasons] for id in ids}))
"""


def groups(model: str) -> dict[str, Group]:
    registry = Registry()
    registry.load(MODELS[model])
    return dict(registry.groups)


PAIRS = [(model, name) for model in MODELS for name in NAMES if f"{model}.{name}" in groups(model)]


def planned(model: str, name: str, first: str, disable: tuple[str, ...] = ()) -> dict[str, Any]:
    catalogs = ["turbo_hydra.catalogs.torch", MODELS[model]]
    ids = [f"torch.{name}", f"{model}.{name}"]
    if first == model:
        catalogs.reverse()
    done = subprocess.run(
        [sys.executable, "-c", PLAN, json.dumps([catalogs, ids, disable])],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize(("model", "name"), PAIRS)
def test_of_a_pair_one_is_on_and_the_other_is_covered_by_it(model: str, name: str) -> None:
    for first in ("torch", model):
        found = planned(model, name, first)
        on = [id for id, (decision, _) in found.items() if decision == "apply"]
        assert len(on) == 1, found
        (other,) = set(found) - set(on)
        decision, reasons = found[other]
        assert decision == "skip"
        assert [reason for reason in reasons if not reason.startswith("forced:")] == [f"covered by {on[0]}"]


@pytest.mark.parametrize(("model", "name"), PAIRS[:1])
@pytest.mark.parametrize("off", ["torch", "model"])
def test_with_one_of_a_pair_off_the_other_is_on(model: str, name: str, off: str) -> None:
    disabled = f"{model if off == 'model' else 'torch'}.{name}"
    found = planned(model, name, "torch", (disabled,))
    assert found.pop(disabled) == ["skip", ["disabled_by_user"]]
    ((decision, _),) = found.values()
    assert decision == "apply"


def test_openpi_has_all_of_them() -> None:
    assert {("openpi", name) for name in NAMES} <= set(PAIRS)


def test_check_takes_configs_that_were_composed(tmp_path: Path) -> None:
    conf = ROOT / "conf" / "optimization"
    path = tmp_path / "both.yaml"
    path.write_text(
        "schema_version: turbo_hydra/optimization-config/v1\nkind: OptimizationConfig\nmodel: {name: tiny_vla}\n"
        f"extends: [{conf / 'common.yaml'}, {conf / 'tiny_vla.yaml'}]\ncompatibility: {{allow_dirty: true}}\n"
        "groups: {torch: {ddp_state: true}, tiny_vla: {ddp_state: true}}\n"
    )
    check = [sys.executable, "-m", "turbo_hydra.cli.opt", "check", str(path), "--static"]
    done = subprocess.run(
        [*check, "--repo", "pkg://turbo_hydra/examples/tiny_vla"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the same change" not in done.stdout
