# SPDX-License-Identifier: Apache-2.0
"""The small model through turbo-train, with its loader's spawned workers: the same losses, and every group is used."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.openpi.small import REPOSITORY
from turbo_hydra.measure.comparing import rank_rows

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
COMMON = (
    "model=openpi",
    f"model.repo={REPOSITORY}",
    "model.pythonpath=[.]",
    "model.positional=[debug_pi05]",
    "model.args.num_train_steps=6",
    "model.args.num_workers=2",
    "model.args.pytorch_training_precision=float32",
    "optimization.groups.openpi.compat_fake_data=true",
    "optimization.options.openpi.compat_fake_data.masks=libero",
    "optimization.options.openpi.pi0_compile.mode=none",
    # The small model is not the code that the groups have evidence for.
    'optimization.force=["*"]',
)


def turbo(folder: Path, *overrides: str) -> tuple[list[float | None], dict[str, Any]]:
    """Losses and report of a run, from a folder that is not the project's."""
    command = [sys.executable, "-m", "turbo_hydra.cli.train", f"hydra.run.dir={folder}", *COMMON, *overrides]
    done = subprocess.run(
        command,
        cwd=folder.parent,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    report: dict[str, Any] = json.loads((folder / "turbo" / "report.json").read_text())
    return [row.loss for row in rank_rows(folder)], report


def test_all_groups_train_alike_and_are_used(tmp_path: Path) -> None:
    plain, _ = turbo(tmp_path / "off", "optimization.enabled=false")
    losses, report = turbo(tmp_path / "on", "optimization.groups.openpi.rope_cache=true")
    assert losses == pytest.approx(plain, rel=1e-4)
    assert len(losses) == 6
    hits = {
        entry["group"].partition(".")[2]: [member["hits"]["replacement"] for member in entry["members"]]
        for entry in report["execution"]
        if entry["status"] == "applied" and entry["members"] and entry["members"][0].get("hits")
    }
    used = {name: sum(counts) for name, counts in hits.items()}
    here = ("pi0_compile", "gemma_checkpoint_stride", "prefix_trim", "rope_cache", "fused_adamw", "clip_grad")
    # Batches are made in workers, which the loader spawns.
    assert all(used[name] > 0 for name in (*here, "deferred_metrics", "tensor_batches")), used
    # Of the parts of the model those count that a group does something to: two cameras, and no list for a device.
    assert hits["camera_batch"] == [6, 2 * 6]
    if not torch.cuda.is_available():
        assert hits["async_masks"] == [0, 0, 0]
    log = (tmp_path / "on" / "turbo" / "ranks" / "0" / "stderr.log").read_text()
    assert "no layer of the joint forward is checkpointed" in log
    assert "joint forward: not compiled, no outer checkpoint" in log


def test_all_off_leaves_what_makes_it_run(tmp_path: Path) -> None:
    plain, _ = turbo(tmp_path / "off", "optimization.enabled=false")
    losses, report = turbo(tmp_path / "none", "optimization=openpi/all_off")
    assert losses == plain
    applied = {entry["group"] for entry in report["execution"] if entry["status"] == "applied"}
    assert {name for name in applied if name.startswith("openpi.")} == {
        "openpi.transformers_replace",
        "openpi.compat_python310",
        "openpi.compat_fake_data",
    }
