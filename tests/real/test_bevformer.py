# SPDX-License-Identifier: Apache-2.0
"""BEVFormer itself: upstream's tools/train.py as it is, on a CPU, on made-up data; minutes a run.

The checkout is the one that BEVFORMER_REPO names, at the commit below.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from turbo_hydra.catalogs.mmcv.extension_names import NAMES
from turbo_hydra.config import OptimizationConfigCatalog, load_catalogs

pytestmark = [pytest.mark.real, pytest.mark.timeout(3600)]

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "bevformer"
EVIDENCE_AT = "66b65f3a1f58caf0507cb2a971b9c0e7f842376c"
# Optimizations for a device.
DEVICE = {"mmcv.dcn_kernel", "bevformer.msda"}
# Groups that are on, of which a CPU calls nothing: these, and what lets a GPU's streams, convolutions that this
# configuration lacks and a GPU's focal loss run at all.
ELSEWHERE = {"mmcv.compat_torch", "mmcv.dcn", "mmcv.focal_loss", *DEVICE}
# float32, with other orders of additions and AdamW's fused kernel. Boxes are matched with queries by the smallest cost:
# once parameters differ in their last digits, another matching of nearly the same cost may be chosen, which shows in
# the loss of the step after.
CLOSE = (1e-6, 1e-4, 1e-2, 1e-2)


@dataclass
class BEVFormer:
    """A checkout, a Python that has what it needs, and data."""

    python: Path
    repository: Path
    folder: Path

    def __call__(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run that Python in a folder of the test's own."""
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("TORCHELASTIC")},
            "OMP_NUM_THREADS": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "BEVFORMER_REPO": str(self.repository),
            "BEVFORMER_DATA": str(self.folder / "data"),
        }
        return subprocess.run(
            [str(self.python), *command],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=3000,
        )

    def train(self, name: str, *overrides: str) -> dict[str, Any]:
        """The merged report of a run; the losses of each rank are under `losses`."""
        run = self.folder / name
        arguments = ("--config-dir", str(EXAMPLE / "conf"), "experiment=bevformer_on_a_cpu", f"hydra.run.dir={run}")
        ran = self("-m", "turbo_hydra.cli.train", *arguments, *overrides)
        assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
        report: dict[str, Any] = json.loads((run / "turbo" / "report.json").read_text(encoding="utf-8"))
        report["losses"] = {
            rank.name: [json.loads(line)["loss"] for line in (rank / "steps.jsonl").read_text("utf-8").splitlines()]
            for rank in sorted((run / "turbo" / "ranks").iterdir())
        }
        return report


@pytest.fixture(scope="module")
def bevformer(environment: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> BEVFormer:
    """BEVFormer with data for four steps."""
    named = os.environ.get("BEVFORMER_REPO")
    if not named:
        pytest.skip("BEVFORMER_REPO names no checkout of BEVFormer")
    made = BEVFormer(environment("bevformer"), Path(named), tmp_path_factory.mktemp("bevformer"))
    ran = made(str(EXAMPLE / "make_data.py"), "data", "--width", "256", "--height", "128")
    assert ran.returncode == 0, ran.stderr
    return made


def hits(report: dict[str, Any]) -> dict[str, int]:
    """How often each applied group with counted members was called, ranks and loader workers together."""
    found = {}
    for entry in report["execution"]:
        counted = [member["hits"]["replacement"] for member in entry["members"] if member.get("hits")]
        if entry["status"] == "applied" and counted and entry["group"] != "measure.steps":
            found[entry["group"]] = sum(counted)
    return found


def close(first: dict[str, Any], second: dict[str, Any]) -> bool:
    return first["losses"].keys() == second["losses"].keys() and all(
        len(losses) == len(second["losses"][rank]) > 1
        and all(
            one == pytest.approx(other, rel=limit)
            for one, other, limit in zip(losses, second["losses"][rank], CLOSE, strict=False)
        )
        for rank, losses in first["losses"].items()
    )


def test_all_groups_train_as_none_and_each_that_a_cpu_can_use_is_used(bevformer: BEVFormer) -> None:
    off = bevformer.train("off", "optimization.enabled=false", "optimization.strict=true")
    on = bevformer.train("on", "optimization.strict=true")
    assert close(on, off), (on["losses"], off["losses"])
    assert off["losses"]["0"][-1] < off["losses"]["0"][0]
    unused = {group for group, calls in hits(on).items() if calls == 0}
    # What the config's grid_mask does, the one for a CPU need not.
    assert unused == {*ELSEWHERE, "bevformer.compat_grid_mask"}
    assert {group for group, calls in hits(off).items() if calls == 0} == ELSEWHERE - DEVICE


def test_two_ranks_agree_and_train_as_without_the_groups(bevformer: BEVFormer) -> None:
    two = ("runtime=cpu_2rank", "optimization.strict=true")
    off = bevformer.train("off2", "optimization.enabled=false", *two)
    on = bevformer.train("on2", *two)
    assert on["disagreements"] == off["disagreements"] == []
    assert set(on["losses"]) == {"0", "1"}
    assert close(on, off), (on["losses"], off["losses"])


def test_groups_that_say_bitwise_train_bit_for_bit(bevformer: BEVFormer) -> None:
    config = OptimizationConfigCatalog().load(ROOT / "conf" / "optimization" / "bevformer.yaml")
    declared = load_catalogs(config).groups
    about = {id: declared[id].about for id, on in config.groups.items() if on}
    others = [
        id
        for id, told in about.items()
        if told is not None and (told.purpose, told.numerics) == ("optimization", "close")
    ]
    alone = "model.args.launcher=none"
    off = bevformer.train("off_alone", alone, "optimization.enabled=false")
    on = bevformer.train("bitwise", alone, f"optimization.disable=[{','.join(others)}]")
    assert sum(hits(on)[id] > 0 for id in ("bevformer.assigner", "bevformer.grid_mask", "bevformer.data")) == 3
    assert on["losses"] == off["losses"]


def test_workers_that_are_forked_draw_as_those_that_are_started_afresh(bevformer: BEVFormer) -> None:
    # One process without torch.distributed: mmcv leaves the start method to us then.
    alone = ("model.args.launcher=none", "optimization.strict=true")
    losses = [bevformer.train(name, f"runtime.start_method={name}", *alone)["losses"] for name in ("fork", "spawn")]
    assert losses[0] == losses[1]


def test_the_stand_in_has_each_name_that_mmcv_asks_its_extension_for(bevformer: BEVFormer) -> None:
    ran = bevformer("-c", "import importlib.util; print(importlib.util.find_spec('mmcv').origin)")
    asked = set()
    for file in Path(ran.stdout.strip()).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("load_ext") and len(node.args) == 2:
                asked |= set(ast.literal_eval(node.args[1]))
    assert asked == set(NAMES)


def test_the_evidence_is_that_of_the_checkout(bevformer: BEVFormer) -> None:
    config = ROOT / "conf" / "optimization" / "bevformer.yaml"
    ran = bevformer("-m", "turbo_hydra.cli.opt", "check", str(config), "--repo", str(bevformer.repository), "--json")
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
