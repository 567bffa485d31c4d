# SPDX-License-Identifier: Apache-2.0
"""The example under Lightning: one run, two ranks, a mismatch, and its own configs on top of ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "lightning_tiny_vla"
TRAIN = ["turbo-train", "--config-dir", str(EXAMPLE / "conf"), "model=lightning_tiny_vla"]
SHORT = ["model.args.steps=4", "model.args.batch-size=4", "model.extra=[--no-eval,--log-every,2]", "hydra.run.dir=run"]


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONSAFEPATH"}
    return subprocess.run(
        command,
        cwd=folder,
        env={**environment, "PATH": path, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return found


def test_the_trainer_gets_the_devices_of_the_runtime(tmp_path: Path) -> None:
    done = run(tmp_path, *TRAIN, "runtime=cpu_2rank", "--cfg", "job", "--resolve", "--package", "model.args")
    assert done.returncode == 0, done.stderr
    assert "devices: 2" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_run_tells_the_same_in_its_folder_and_in_lightnings(tmp_path: Path, ranks: int) -> None:
    done = run(tmp_path, *TRAIN, *SHORT, *(["runtime=cpu_2rank"] if ranks == 2 else []))
    assert done.returncode == 0, done.stderr[-3000:]
    assert "4 steps" in done.stdout
    merged, lightnings = (read(tmp_path / "run" / where / "turbo" / "report.json") for where in (".", "version_0"))
    statuses = [{entry["group"]: entry["status"] for entry in told["execution"]} for told in (merged, lightnings)]
    assert statuses[0] == statuses[1]
    applied = {id for id, status in statuses[0].items() if status == "applied"}
    assert {"torch.fused_adamw", "tiny_vla.checkpoint_off", "tiny_vla.last_prefix"} <= applied
    assert merged["steps"]["count"] == lightnings["steps"]["count"] == 4
    assert len(list((tmp_path / "run" / "version_0" / "turbo" / "ranks").iterdir())) == ranks
    events = __import__("tensorboard.backend.event_processing.event_accumulator", fromlist=["x"])
    found = events.EventAccumulator(str(tmp_path / "run" / "version_0"))
    found.Reload()
    assert {"loss", "turbo_hydra/peak_memory_gib", "turbo_hydra/hits/tiny_vla.rope_once"} <= set(
        found.Tags()["scalars"]
    )


@pytest.mark.slow
def test_devices_that_do_not_run_are_one_sentence(tmp_path: Path) -> None:
    done = run(tmp_path, *TRAIN, *SHORT, "runtime=cpu_2rank", "model.args.devices=3")
    assert done.returncode != 0
    said = "the Trainer asks for devices=3, and the launcher has started 2 ranks on this node; leave devices out"
    assert said in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.slow
def test_without_turbo_train_two_lines_do_the_same(tmp_path: Path) -> None:
    done = run(
        tmp_path, sys.executable, str(EXAMPLE / "fit_alone.py"), "--steps", "2", "--batch-size", "4", "--no-eval"
    )
    assert done.returncode == 0, done.stderr[-3000:]
    told = read(tmp_path / "lightning_logs" / "version_0" / "turbo" / "report.json")
    assert (told["summary"]["applied"], told["summary"]["blocked"], told["steps"]["count"]) == (5, 0, 2)
