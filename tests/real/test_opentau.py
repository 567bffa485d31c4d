# SPDX-License-Identifier: Apache-2.0
"""opentau changes transformers when it is imported: what of ours meets it is blocked or lost, the rest is applied."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.real, pytest.mark.timeout(3600)]
HERE = Path(__file__).parent
RECIPE = """\
# @package optimization
schema_version: turbo_hydra/recipe/v1
kind: OptimizationRecipe
metadata: {id: NAME, version: 1.0.0, description: groups that meet opentau at the same objects}
catalogs: [CATALOGS]
groups:
  lerobot: {compat_torchvision: true, geglu: ON, rope_once: ON}
  transformers: {gemma_rms_norm: ON, gemma_rotary: ON}
  torch: {fused_adamw: ON}
"""
CATALOGS = ("turbo_hydra.catalogs.models.lerobot", "turbo_hydra.catalogs.transformers", "turbo_hydra.catalogs.torch")
OWN = "  opentau: {rope: true, layer: true, tower: true}\n"
# What opentau has put where a group wants to be, all of it in one file.
FILE = "opentau/utils/transformers_patch.py"
MET = ("transformers.gemma_rms_norm", "opentau.layer", "opentau.tower")
FREE = ("transformers.gemma_rotary", "lerobot.geglu", "lerobot.rope_once", "torch.fused_adamw")
# Kernels have no part in a CPU's step, and opentau rotates by a function of its own.
CALLED = ("lerobot.geglu", "torch.fused_adamw")


@dataclass(frozen=True)
class Program:
    """opentau in an environment of its own, and configs for it in a folder."""

    python: Path
    folder: Path

    def call(self, name: str, *arguments: str) -> None:
        """Run a program of the environment."""
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
        done = subprocess.run(
            [str(self.python.with_name(name)), *arguments],
            cwd=self.folder,
            env={**kept, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(HERE)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]

    def generate(self, name: str, catalogs: tuple[str, ...], groups: str, on: str = "true") -> None:
        """Write a config, with evidence of what is installed."""
        text = RECIPE.replace("NAME", name).replace("CATALOGS", ", ".join(catalogs)).replace("ON", on)
        (self.folder / f"{name}.recipe.yaml").write_text(text + groups, encoding="utf-8")
        self.call(
            *("turbo-opt", "generate", "--static", "--repo", "pkg://turbo_hydra/examples/lerobot"),
            *("--recipe", f"{name}.recipe.yaml", "--output", f"{name}.yaml"),
        )

    def train(self, name: str) -> tuple[list[float], dict[str, Any]]:
        """Losses, and the report."""
        run = self.folder / name
        answer = self.folder / f"{name}.json"
        self.call(
            *("turbo-train", "run", f"optimization.config={name}.yaml", f"hydra.run.dir={run}"),
            *("--", str(self.python), str(HERE / "opentau_program.py"), str(answer)),
        )
        report: dict[str, Any] = json.loads((run / "turbo" / "report.json").read_text(encoding="utf-8"))
        return json.loads(answer.read_text(encoding="utf-8")), report


@pytest.fixture(scope="module")
def program(environment: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Program:
    """opentau."""
    return Program(environment("opentau"), tmp_path_factory.mktemp("opentau"))


@pytest.fixture(scope="module")
def plain(program: Program) -> list[float]:
    """Losses of opentau with what it needs to run and nothing else."""
    program.generate("plain", CATALOGS, "", on="false")
    losses, _ = program.train("plain")
    assert losses[-1] < 0.8 * losses[0]
    return losses


def by_group(report: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {entry["group"]: entry for entry in report["execution"]}


def used(entry: dict[str, Any]) -> int:
    return sum(member["hits"]["replacement"] for member in entry["members"])


def test_what_opentau_changed_before_is_blocked_with_its_file_and_line(program: Program, plain: list[float]) -> None:
    program.generate("theirs_first", ("opentau_catalog", *CATALOGS), OWN)
    losses, report = program.train("theirs_first")
    told = by_group(report)
    assert {id: told[id]["status"] for id in MET} == dict.fromkeys(MET, "blocked")
    assert {id: told[id]["status"] for id in ("opentau.rope", *FREE)} == dict.fromkeys(
        ("opentau.rope", *FREE), "applied"
    )
    failed = {check["group"]: check for check in report["prepared_execution"]["checks"] if check["status"] == "fail"}
    page = (program.folder / "theirs_first" / "turbo" / "report.md").read_text(encoding="utf-8")
    for id in MET:
        assert f"{FILE}:" in failed[id]["message"], failed[id]
        assert failed[id]["message"] in page, id
    assert "PatchedGemmaRMSNorm" in failed["transformers.gemma_rms_norm"]["message"]
    assert all(used(told[id]) for id in ("opentau.rope", *CALLED))
    assert losses == pytest.approx(plain, rel=2e-2)


def test_what_opentau_takes_from_us_is_told_with_its_file_and_line(program: Program, plain: list[float]) -> None:
    program.generate("ours_first", CATALOGS, "")
    losses, report = program.train("ours_first")
    told = by_group(report)
    lost = told["transformers.gemma_rms_norm"]
    assert lost["status"] == "failed"
    assert "PatchedGemmaRMSNorm" in lost["error"]
    assert f"{FILE}:" in lost["error"]
    assert {id: told[id]["status"] for id in FREE} == dict.fromkeys(FREE, "applied")
    assert all(used(told[id]) for id in CALLED)
    assert losses == pytest.approx(plain, rel=2e-2)
