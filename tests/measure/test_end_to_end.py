# SPDX-License-Identifier: Apache-2.0
"""A script of somebody's, metered by turbo-train: its own numbers, and nothing left in them that was not there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from turbo_hydra.measure.comparing import rank_rows

SCRIPT = """
import argparse
import json
import sys

import torch
from torch.nn.utils import clip_grad_norm_
from torch.utils.data import DataLoader

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=8)
parser.add_argument("--out")
args = parser.parse_args()

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
seen = []
for batch in DataLoader(torch.randn(80, 4), batch_size=args.batch_size, shuffle=True):
    loss = (model(batch) - batch.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    norm = clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    seen.append({"loss": loss.item(), "grad_norm": norm.item()})
with open(args.out, "w") as file:
    json.dump(seen, file)
"""


def train(folder: Path, *overrides: str) -> tuple[list[dict[str, float]], dict[str, Any]]:
    """What the script itself took down, and the run's report."""
    (folder / "mine").mkdir(exist_ok=True)
    (folder / "mine" / "train.py").write_text(SCRIPT, encoding="utf-8")
    script = ["model=custom", "model.repo=mine", "model.entry=train.py", f"model.args.out={folder / 'seen.json'}"]
    command = [sys.executable, "-m", "turbo_hydra.cli.train", "hydra.run.dir=run", *script, *overrides]
    root = str(Path(__file__).resolve().parents[2])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    seen = json.loads((folder / "seen.json").read_text(encoding="utf-8"))
    return seen, json.loads((folder / "run" / "turbo" / "report.json").read_text(encoding="utf-8"))


@pytest.mark.slow
def test_the_meter_tells_what_the_script_tells_and_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "with").mkdir()
    (tmp_path / "without").mkdir()
    seen, report = train(
        tmp_path / "with", "+model.args.batch-size=8", "model.batch=batch-size", "measure.writers=[csv]"
    )
    rows = rank_rows(tmp_path / "with" / "run")
    assert [{"loss": row.loss, "grad_norm": row.grad_norm} for row in rows] == seen
    assert [row.samples for row in rows] == [8] * 10
    assert all(row.data_ms is not None for row in rows)
    assert (tmp_path / "with" / "run" / "turbo" / "ranks" / "0" / "steps.csv").exists()
    assert report["steps"]["count"] == 10
    assert report["steps"]["last_loss"] == seen[-1]["loss"]

    plain, report = train(tmp_path / "without", "measure=off")
    assert plain == seen
    assert not list((tmp_path / "without").rglob("steps.jsonl"))
    assert not report.get("steps")
