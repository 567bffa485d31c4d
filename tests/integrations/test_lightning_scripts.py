# SPDX-License-Identifier: Apache-2.0
"""Scripts of a Lightning user in processes of their own: plain python, torchrun with two ranks, turbo-train, a CLI."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
LIT = """
    import torch
    from {lightning} import LightningDataModule, LightningModule
    from torch import nn


    class Policy(LightningModule):
        def __init__(self, width: int = 8) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.net = nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, 1))

        def training_step(self, batch, index):
            loss = self.net(batch).square().mean()
            self.log("loss", loss)
            return loss

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), 1e-2)


    class Data(LightningDataModule):
        def train_dataloader(self):
            data = torch.randn(32, 4, generator=torch.Generator().manual_seed(1))
            return torch.utils.data.DataLoader(data, batch_size=4)
"""
TRAIN = """
    {head}
    from turbo_hydra.integrations.lightning import TurboCallback, trainer_settings
    from {lightning} import Trainer
    import lit

    trainer = Trainer(
        max_epochs=1, accelerator="cpu", logger={logger}, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, default_root_dir="out", callbacks=[TurboCallback()], **trainer_settings({devices})
    )
    trainer.fit(lit.Policy(), lit.Data())
    print("FUSED", trainer.optimizers[0].param_groups[0]["fused"])
"""
APPLY = "import turbo_hydra; turbo_hydra.apply()"
CLI = """
    from turbo_hydra.integrations.lightning import turbo_cli

    turbo_cli("lit.Policy", "lit.Data", trainer_defaults={
        "accelerator": "cpu", "logger": False, "enable_checkpointing": False, "enable_progress_bar": False,
        "enable_model_summary": False, "default_root_dir": "out"}, save_config_callback=None)
"""
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


def write(folder: Path, *, head: str = APPLY, lightning: str = "lightning.pytorch", **more: Any) -> None:
    values = {"head": head, "lightning": lightning, "logger": False, "devices": "", **more}
    (folder / "lit.py").write_text(dedent(LIT).format(lightning=lightning), encoding="utf-8")
    (folder / "train.py").write_text(dedent(TRAIN).format(**values), encoding="utf-8")
    (folder / "cli.py").write_text(dedent(CLI), encoding="utf-8")


def run(folder: Path, *command: str, status: int = 0) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONSAFEPATH"}
    environment |= {"OMP_NUM_THREADS": "1", "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == status, done.stdout[-2000:] + done.stderr[-4000:]
    return done


def report(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return found


def status_of(told: dict[str, Any], group: str) -> str:
    statuses = {entry["group"]: entry["status"] for entry in told["execution"]}
    return str(statuses[group])


@pytest.mark.slow
@pytest.mark.parametrize("lightning", ["lightning.pytorch", "pytorch_lightning"])
def test_two_lines_and_a_callback_without_turbo_train(tmp_path: Path, lightning: str) -> None:
    write(tmp_path, lightning=lightning)
    done = run(tmp_path, sys.executable, "train.py")
    assert "FUSED True" in done.stdout
    assert "TurboCallback" not in done.stderr, "nothing to complain of"
    told = report(tmp_path / "out" / "turbo" / "report.json")
    assert status_of(told, "torch.fused_adamw") == "applied"
    assert told["steps"]["count"] == 8
    timing = [check for check in told["prepared_execution"]["checks"] if check["code"] == "import.timing"]
    assert timing == [], "turbo_hydra.integrations.lightning itself imports no torch"


@pytest.mark.slow
def test_two_ranks_under_torchrun(tmp_path: Path) -> None:
    write(tmp_path)
    run(tmp_path, *TORCHRUN, "train.py")
    ranks = [report(tmp_path / "out" / "turbo" / "ranks" / str(rank) / "report.json") for rank in (0, 1)]
    assert [told["rank"] for told in ranks] == [0, 1]
    assert [told["steps"]["count"] for told in ranks] == [4, 4]
    assert ranks[0]["execution"][0]["status"] == ranks[1]["execution"][0]["status"] == "applied"


@pytest.mark.slow
def test_devices_that_do_not_run_are_one_sentence(tmp_path: Path) -> None:
    write(tmp_path, devices="devices=3")
    done = run(tmp_path, *TORCHRUN, "train.py", status=1)
    said = (
        "turbo_hydra: the Trainer asks for devices=3, and the launcher has started 2 ranks on this node; "
        "leave devices out, or set runtime.ranks to 3"
    )
    assert said in done.stderr
    write(tmp_path, devices="devices=2")
    run(tmp_path, *TORCHRUN, "train.py")


@pytest.mark.slow
def test_turbo_train_runs_the_command_that_people_type_with_two_ranks(tmp_path: Path) -> None:
    write(tmp_path, head="", logger='__import__("lightning").pytorch.loggers.CSVLogger("out")')
    run(tmp_path, "turbo-train", "run", "hydra.run.dir=run", "--", "torchrun", *TORCHRUN[3:], "train.py")
    merged = report(tmp_path / "run" / "turbo" / "report.json")
    assert [rank["status"] for rank in merged["ranks"]] == ["succeeded", "succeeded"]
    assert merged["steps"]["count"] == 4
    assert status_of(merged, "torch.fused_adamw") == "applied"
    assert list((tmp_path / "out").rglob("turbo/report.json"))


@pytest.mark.slow
def test_lightnings_command_line_applies_by_itself(tmp_path: Path) -> None:
    write(tmp_path)
    done = run(tmp_path, sys.executable, "cli.py", "fit", "--trainer.max_epochs=1", "--model.width=6")
    assert "TurboCallback" not in done.stderr
    told = report(tmp_path / "out" / "turbo" / "report.json")
    assert (status_of(told, "torch.fused_adamw"), told["steps"]["count"]) == ("applied", 8)
    run(tmp_path, *TORCHRUN, "cli.py", "fit", "--trainer.max_epochs=1")
    assert report(tmp_path / "out" / "turbo" / "ranks" / "1" / "report.json")["steps"]["count"] == 4
    wrong = run(tmp_path, *TORCHRUN, "cli.py", "fit", "--trainer.devices=3", status=1)
    assert "the Trainer asks for devices=3, and the launcher has started 2 ranks on this node" in wrong.stderr
