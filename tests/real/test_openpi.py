# SPDX-License-Identifier: Apache-2.0
"""OpenPI itself: its scripts as they are in a checkout, `debug_pi05` on a CPU; minutes and 9 GiB a run.

The checkout is the one that OPENPI_REPO names. Commands of examples/openpi/README.md are tried on it too. The data set
library, which no package index has in the version that OpenPI imports, is stood in for: fake data does not use it.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.real, pytest.mark.timeout(3600)]

ROOT = Path(__file__).resolve().parents[2]
EVIDENCE_AT = "15a9616a00943ada6c20a0f158e3adb39df2ccac"
README = (ROOT / "examples" / "openpi" / "README.md").read_text(encoding="utf-8")
# `debug_pi05` in float32, one sample a step, nothing compiled; at this rate the expert's gates are open after a step.
DEBUG = (
    "model=openpi",
    "model.positional=[debug_pi05]",
    "model.args.exp_name=real",
    "model.args.overwrite=true",
    "model.args.batch_size=1",
    "model.args.num_train_steps=1000",
    "model.args.pytorch_training_precision=float32",
    "model.args.no-wandb-enabled=true",
    "+model.args.lr_schedule={warmup_steps: 1, peak_lr: 1.0e-3, decay_lr: 1.0e-3}",
    "runtime.accelerator=cpu",
    "optimization.groups.openpi.compat_fake_data=true",
    "+optimization.options.openpi={compat_fake_data: {masks: libero}, pi0_compile: {mode: none}}",
    "measure.stop_after=3",
)
FOR_TWO_RANKS = 21
# Of the groups that are on, those that a CPU cannot use.
ON_A_CARD = {"openpi.prefix_attention", "openpi.device_batches", "openpi.async_masks"}


@dataclass
class OpenPI:
    """A checkout, and a Python that has what it needs."""

    python: Path
    repository: Path
    folder: Path

    def __call__(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run that Python in a folder of the test's own."""
        search = (self.folder, self.repository / "src", self.repository / "packages" / "openpi-client" / "src")
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("TORCHELASTIC")},
            "OMP_NUM_THREADS": "1",
            "OPENPI_REPO": str(self.repository),
            "PYTHONPATH": os.pathsep.join(map(str, search)),
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
        """The merged report of a run of OpenPI's script; its losses are under `losses`."""
        run = self.folder / name
        ran = self("-m", "turbo_hydra.cli.train", f"hydra.run.dir={run}", *DEBUG, *overrides)
        assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
        report: dict[str, Any] = json.loads((run / "turbo" / "report.json").read_text(encoding="utf-8"))
        lines = (run / "turbo" / "ranks" / "0" / "steps.jsonl").read_text(encoding="utf-8").splitlines()
        report["losses"] = [row["loss"] for row in map(json.loads, lines) if row.get("loss") is not None]
        report["said"] = ran.stdout
        return report


@pytest.fixture(scope="module")
def openpi(environment: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> OpenPI:
    named = os.environ.get("OPENPI_REPO")
    if named is None or not Path(named, "scripts", "train_pytorch.py").is_file():
        pytest.skip("OPENPI_REPO names no checkout of OpenPI (Physical-Intelligence/openpi)")
    folder = tmp_path_factory.mktemp("openpi")
    library = folder / "lerobot" / "common" / "datasets"
    library.mkdir(parents=True)
    library.joinpath("lerobot_dataset.py").write_text("LeRobotDataset = LeRobotDatasetMetadata = None\n")
    return OpenPI(environment("openpi"), Path(named).resolve(), folder)


def test_the_shipped_config_is_for_this_checkout(openpi: OpenPI) -> None:
    head = subprocess.run(
        ["git", "-C", str(openpi.repository), "rev-parse", "HEAD"], capture_output=True, text=True, check=True
    )
    if head.stdout.strip() != EVIDENCE_AT:
        pytest.skip(f"OPENPI_REPO is at {head.stdout.strip()[:12]}, the shipped evidence is of {EVIDENCE_AT[:12]}")
    config = ROOT / "conf" / "optimization" / "openpi.yaml"
    checked = openpi("-m", "turbo_hydra.cli.opt", "check", str(config), "--repo", str(openpi.repository), "--static")
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_one_command_takes_the_evidence_of_a_checkout(openpi: OpenPI) -> None:
    (line,) = [line for line in README.splitlines() if line.startswith("turbo-opt generate")]
    head = subprocess.run(
        ["git", "-C", str(openpi.repository), "rev-parse", "HEAD"], capture_output=True, text=True, check=True
    )
    words = shlex.split(re.sub(r"\$\(.*\)", str(ROOT), line).replace("$OPENPI_REPO", str(openpi.repository)))
    words[words.index("--commit") + 1] = head.stdout.strip()
    words[words.index("--recipe") + 1] = str(ROOT / "conf" / "optimization" / "recipe" / "openpi.yaml")
    taken = openpi("-m", "turbo_hydra.cli.opt", *words[1:])
    assert taken.returncode == 0, taken.stdout + taken.stderr
    assert (openpi.folder / words[words.index("--output") + 1]).is_file()


@pytest.mark.parametrize("script", ["scripts/compute_norm_stats.py", "examples/convert_jax_model_to_pytorch.py"])
def test_options_of_the_readme_are_those_of_openpis_scripts(openpi: OpenPI, script: str) -> None:
    (line,) = [line for line in README.splitlines() if f"python {script}" in line]
    asked = openpi(str(openpi.repository / script), "--help")
    assert asked.returncode == 0, asked.stderr[-2000:]
    given = re.findall(r"(--[\w-]+)", line.partition(script)[2])
    assert given
    known = {name.replace("_", "-") for name in re.findall(r"--[\w-]+", asked.stdout)}
    assert {name.replace("_", "-") for name in given} <= known


def used(report: dict[str, Any]) -> dict[str, int]:
    """For each optimization that is applied: how often it took its replacement."""
    return {
        entry["group"]: sum((member["hits"] or {}).get("replacement", 0) for member in entry["members"])
        for entry in report["execution"]
        if entry["status"] == "applied" and entry["purpose"] == "optimization" and not entry["observer"]
    }


def test_each_group_is_used_and_the_losses_are_upstreams(openpi: OpenPI) -> None:
    ours = openpi.train("ours")
    plain = openpi.train("plain", "optimization.enabled=false")
    assert len(plain["losses"]) >= 3
    assert ours["losses"] == pytest.approx(plain["losses"], rel=1e-4)
    assert used(plain) == {}
    hits = used(ours)
    assert len(hits) > 5
    assert {group for group, count in hits.items() if count == 0} == ON_A_CARD | {"openpi.ddp_state"}
    assert hits["openpi.strided_attention"] > 0
    # OpenPI's two loader workers are spawned, and collate.
    (collating,) = [entry for entry in ours["execution"] if entry["group"] == "openpi.tensor_batches"]
    assert collating["members"][0]["hits_in_children"]["replacement"] >= 3
    said = [line for line in ours["said"].splitlines() if "never called" in line]
    # Without a stride no layer is checkpointed, so that this part of its group has nothing to do.
    unused = "openpi.gemma_checkpoint_stride: applied, and never called: torch.utils.checkpoint.checkpoint"
    expected = ("openpi.ddp_state:", unused)
    assert [line for line in said if not line.startswith(expected)] == []


def test_two_ranks_use_every_group_and_agree(openpi: OpenPI) -> None:
    lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
    (free,) = [int(line.split()[1]) / 2**20 for line in lines if line.startswith("MemAvailable:")]
    if free < FOR_TWO_RANKS:
        pytest.skip(f"two ranks take {FOR_TWO_RANKS} GiB of memory, {free:.0f} GiB are free")
    report = openpi.train("two", "runtime=cpu_2rank", "model.args.batch_size=2")
    assert [rank["status"] for rank in report["ranks"]] == ["succeeded", "succeeded"]
    assert report["disagreements"] == []
    assert report["steps"]["count"] >= 3
    hits = used(report)
    assert {group for group, count in hits.items() if count == 0} == ON_A_CARD
    assert hits["openpi.ddp_state"] == 2
