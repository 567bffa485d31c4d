# SPDX-License-Identifier: Apache-2.0
"""The example through turbo-train: the same training with the groups on and off, and what a changed target does."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.tiny_vla.reading import losses

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
SHORT = ("model.args.batch-size=4", "+model.args.log-every=1", "+model.args.no-eval=true")
TOLERANCE = 1e-3  # relative, of the losses of the first steps


@dataclass
class Ran:
    """A run."""

    status: int
    output: str
    folder: Path

    @property
    def losses(self) -> dict[int, float]:
        return losses((self.folder / "turbo" / "ranks" / "0" / "stdout.log").read_text())

    @property
    def report(self) -> dict[str, Any]:
        data: dict[str, Any] = json.loads((self.folder / "turbo" / "report.json").read_text())
        return data

    def entry(self, group: str) -> dict[str, Any]:
        (entry,) = [item for item in self.report["execution"] if item["group"] == group]
        found: dict[str, Any] = entry
        return found


def turbo(tmp_path: Path, name: str, *overrides: str, steps: int = 4) -> Ran:
    """Run turbo-train, from a folder that is not the project's."""
    folder = tmp_path / name
    command = [sys.executable, "-m", "turbo_hydra.cli.train", f"hydra.run.dir={folder}", f"model.args.steps={steps}"]
    done = subprocess.run(
        [*command, *SHORT, *overrides],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        errors="replace",
        timeout=300,
        check=False,
    )
    return Ran(done.returncode, done.stdout + done.stderr, folder)


def test_losses_agree_and_checkpoints_go_over_both_ways(tmp_path: Path) -> None:
    on = turbo(tmp_path, "on", f"+model.args.output={tmp_path / 'saved_on'}", "+model.args.save-every=2")
    off = turbo(
        tmp_path,
        "off",
        f"+model.args.output={tmp_path / 'saved_off'}",
        "+model.args.save-every=2",
        "optimization.enabled=false",
    )
    assert on.status == off.status == 0, on.output + off.output
    assert on.report["summary"] | {"skipped": 0} == {
        "applied": 5,
        "skipped": 0,
        "blocked": 0,
        "failed": 0,
        "rolled_back": 0,
        "not_started": 0,
    }
    assert list(on.losses) == [1, 2, 3, 4]
    assert on.losses == pytest.approx(off.losses, rel=TOLERANCE)

    saved = [torch.load(tmp_path / folder / "checkpoint.pt") for folder in ("saved_on", "saved_off")]
    assert saved[0]["model"].keys() == saved[1]["model"].keys()
    assert saved[0]["optimizer"]["param_groups"] == saved[1]["optimizer"]["param_groups"]
    assert saved[0]["optimizer"]["state"].keys() == saved[1]["optimizer"]["state"].keys()

    to_off = turbo(
        tmp_path, "to_off", f"+model.args.resume={tmp_path / 'saved_on' / 'step-2.pt'}", "optimization.enabled=false"
    )
    to_on = turbo(tmp_path, "to_on", f"+model.args.resume={tmp_path / 'saved_off' / 'step-2.pt'}")
    assert to_off.status == to_on.status == 0, to_off.output + to_on.output
    expected = {step: off.losses[step] for step in (3, 4)}
    assert to_off.losses == pytest.approx(expected, rel=TOLERANCE)
    assert to_on.losses == pytest.approx(expected, rel=TOLERANCE)


@pytest.fixture
def changed(example: Path, tmp_path: Path) -> Path:
    """Copy the example and change one token of one target."""
    repository = tmp_path / "repository"
    shutil.copytree(example, repository, ignore=shutil.ignore_patterns("__pycache__"))
    path = repository / "tiny_vla" / "rotary.py"
    text = path.read_text()
    assert text.count("torch.cat((angles, angles), dim=-1)") == 1
    path.write_text(text.replace("torch.cat((angles, angles), dim=-1)", "torch.cat((angles, angles), dim=2)"))
    return repository


def test_a_changed_target_blocks_its_group_and_no_other(changed: Path, tmp_path: Path) -> None:
    ran = turbo(tmp_path, "blocked", f"model.repo={changed}", steps=2)
    assert ran.status == 0, ran.output
    assert list(ran.losses) == [1, 2]
    statuses = {item["group"]: item["status"] for item in ran.report["execution"] if item["decision"] != "skip"}
    assert {group for group, status in statuses.items() if status == "blocked"} == {"tiny_vla.rope_once"}
    assert set(statuses.values()) == {"applied", "blocked"}
    assert "rotary.py:" in (ran.folder / "turbo" / "report.md").read_text()

    strict = turbo(tmp_path, "strict", f"model.repo={changed}", "optimization.strict=true", steps=2)
    assert strict.status == 3, strict.output
    assert strict.losses == {}

    forced = turbo(tmp_path, "forced", f"model.repo={changed}", "optimization.force=[tiny_vla.rope_once]", steps=2)
    assert forced.status == 0, forced.output
    assert forced.entry("tiny_vla.rope_once")["status"] == "applied"
    assert forced.losses == ran.losses
