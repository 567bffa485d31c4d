# SPDX-License-Identifier: Apache-2.0
"""lerobot's own lerobot-train, unmodified, on recorded demonstrations: 0.6.1, and 0.4.4, which refuses to run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from turbo_hydra.measure.comparing import rank_rows

pytestmark = [pytest.mark.real, pytest.mark.timeout(3600)]
ROOT = Path(__file__).resolve().parents[2]
PREPARE = ROOT / "examples" / "lerobot" / "prepare.py"
# What each group does to the losses of the first steps, relative to them; bitwise where nothing else is said.
CLOSE = 1e-4
GROUPS = {
    "checkpoint": 0.0,
    "attention": CLOSE,
    "ada_rms_norm": CLOSE,
    "geglu": CLOSE,
    "rope_once": 0.0,
    "fused_adamw": CLOSE,
    "clip_grad": CLOSE,
    # accelerate makes DistributedDataParallel for one rank too, where a launcher has started it.
    "ddp_state": CLOSE,
}
CHECKPOINTED = ("model.args.steps=6", "model.args.policy.gradient_checkpointing=true")
# The losses of runs without optimizations, by their settings: each is compared with several.
_plain: dict[tuple[str, ...], list[float]] = {}


@dataclass(frozen=True)
class Program:
    """lerobot in an environment of its own, with a folder that was prepared in it."""

    python: Path
    config: str
    folder: Path

    def call(self, *arguments: str, runs: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run turbo-train."""
        where = [] if runs is None else [f"hydra.run.dir={runs}"]
        kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONSAFEPATH")}
        return subprocess.run(
            [str(self.python.with_name("turbo-train")), *arguments[:1], *where, *arguments[1:]],
            cwd=self.folder,
            env={**kept, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    def train(self, runs: Path, *overrides: str, ranks: int = 1) -> tuple[list[float], dict[str, Any]]:
        """Losses and report of a run of lerobot-train."""
        done = self.attempt(runs, *overrides)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        report: dict[str, Any] = json.loads((runs / "turbo" / "report.json").read_text(encoding="utf-8"))
        assert report["disagreements"] == []
        assert len(report["ranks"]) == ranks
        losses = [row.loss for row in rank_rows(runs)]
        assert all(loss is not None for loss in losses)
        return [loss for loss in losses if loss is not None], report

    def plain(self, runs: Path, *settings: str, ranks: int = 1) -> list[float]:
        """Losses with what lerobot needs to run and nothing else."""
        key = (self.config, *settings)
        if key not in _plain:
            _plain[key], report = self.train(runs, *settings, "optimization.enabled=false", ranks=ranks)
            assert used(report) == {}
        return _plain[key]

    def attempt(self, runs: Path, *overrides: str) -> subprocess.CompletedProcess[str]:
        """Start lerobot-train with the small model."""
        return self.call("experiment=lerobot_tiny", f"optimization={self.config}", *overrides, runs=runs)


def prepared(environment: Callable[[str], Path], name: str, config: str, folder: Path) -> Program:
    program = Program(environment(name), config, folder)
    made = program.call(
        "run", f"optimization={config}", "--", str(program.python), str(PREPARE), "w", "--episodes", "4"
    )
    assert made.returncode == 0, made.stdout[-3000:] + made.stderr[-3000:]
    assert "3 tasks" in made.stdout
    return Program(program.python, config, folder / "w")


@pytest.fixture(scope="module")
def newest(environment: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Program:
    """lerobot 0.6.1."""
    return prepared(environment, "lerobot_061", "lerobot_pi05", tmp_path_factory.mktemp("lerobot_061"))


@pytest.fixture(scope="module")
def older(environment: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Program:
    """lerobot 0.4.4."""
    return prepared(environment, "lerobot_044", "lerobot_044", tmp_path_factory.mktemp("lerobot_044"))


def used(report: Mapping[str, Any]) -> dict[str, int]:
    """How often each optimization that was applied took the replacement."""
    return {
        entry["group"].removeprefix("lerobot."): sum(member["hits"]["replacement"] for member in entry["members"])
        for entry in report["execution"]
        if entry["group"].startswith("lerobot.") and entry["status"] == "applied" and entry["purpose"] == "optimization"
    }


def off(*names: str) -> list[str]:
    return [f"optimization.groups.lerobot.{name}=false" for name in names]


@pytest.mark.parametrize(
    ("group", "error"),
    [
        ("compat_torchvision", "operator torchvision::nms does not exist"),
        pytest.param(
            *("compat_python311", "SyntaxError: "),
            marks=pytest.mark.skipif(sys.version_info >= (3, 12), reason="Python 3.12 reads it"),
        ),
    ],
)
def test_without_a_compatibility_group_it_does_not_start(
    newest: Program, tmp_path: Path, group: str, error: str
) -> None:
    done = newest.attempt(tmp_path / "run", f"optimization.disable=[lerobot.{group}]", "model.args.steps=1")
    assert done.returncode == 1
    assert error in done.stdout + done.stderr


@pytest.mark.parametrize(("policy", "dtype"), [("pi05", "float32"), ("pi05", "bfloat16"), ("pi0", "float32")])
def test_all_groups_train_as_none_and_are_used(newest: Program, tmp_path: Path, policy: str, dtype: str) -> None:
    settings = (*CHECKPOINTED, f"model.args.policy.type={policy}", f"model.args.policy.dtype={dtype}")
    plain = newest.plain(tmp_path / "none", *settings)
    losses, report = newest.train(tmp_path / "all", *settings, "optimization.strict=true")
    hits = used(report)
    assert set(hits) == set(GROUPS)
    assert all(hits.values()), hits
    assert len(losses) == len(plain) == 6
    assert losses == pytest.approx(plain, rel=CLOSE if dtype == "float32" else 5e-3)


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_alone_trains_as_none(newest: Program, tmp_path: Path, group: str) -> None:
    plain = newest.plain(tmp_path / "none", *CHECKPOINTED)
    others = off(*(name for name in GROUPS if name != group))
    losses, report = newest.train(tmp_path / "one", *CHECKPOINTED, *others, "optimization.strict=true")
    assert set(used(report)) == {group}
    assert used(report)[group] > 0
    assert losses == pytest.approx(plain, rel=GROUPS[group], abs=0.0)


@pytest.mark.parametrize("stride", [0, 2])
def test_strides_of_checkpoints_train_alike(newest: Program, tmp_path: Path, stride: int) -> None:
    others = off(*(name for name in GROUPS if name != "checkpoint"))
    option = f"optimization.options.lerobot.checkpoint.layer_stride={stride}"
    losses, _ = newest.train(tmp_path / "run", *CHECKPOINTED, *others, option)
    assert losses == newest.plain(tmp_path / "none", *CHECKPOINTED)


def test_two_ranks_train_as_they_do_without(newest: Program, tmp_path: Path) -> None:
    settings = (*CHECKPOINTED, "runtime=cpu_2rank")
    plain = newest.plain(tmp_path / "none", *settings, ranks=2)
    losses, report = newest.train(tmp_path / "all", *settings, "optimization.strict=true", ranks=2)
    assert set(used(report)) == set(GROUPS)
    assert all(used(report).values()), used(report)
    assert losses == pytest.approx(plain, rel=CLOSE)


def test_losses_fall_and_a_checkpoint_is_written_that_lerobot_resumes(newest: Program, tmp_path: Path) -> None:
    losses, _ = newest.train(tmp_path / "first", "model.args.steps=120", "model.args.save_checkpoint=true")
    assert sum(losses[-20:]) / 20 < 0.85 * sum(losses[:5]) / 5
    saved = tmp_path / "first" / "lerobot" / "checkpoints" / "last" / "pretrained_model" / "train_config.json"
    resumed, _ = newest.train(
        tmp_path / "second",
        *("model.args.steps=122", "model.args.resume=true", f"+model.args.config_path={saved}"),
        "optimization.enabled=false",
    )
    assert len(resumed) == 2
    assert max(resumed) < losses[0]


def test_0_4_4_refuses_without_the_group_and_trains_with_it(older: Program, tmp_path: Path) -> None:
    refused = older.attempt(tmp_path / "without", "optimization.disable=[lerobot.transformers_names]")
    assert refused.returncode == 1
    assert "ValueError: An incorrect transformer version is used" in refused.stdout + refused.stderr
    losses, report = older.train(tmp_path / "with", "model.args.steps=120")
    assert sum(losses[-20:]) / 20 < 0.85 * sum(losses[:5]) / 5
    applied = {entry["group"]: entry for entry in report["execution"] if entry["status"] == "applied"}
    norm = {
        member["target"]: member["hits"]["replacement"] for member in applied["lerobot.conditional_norm"]["members"]
    }
    assert norm["transformers.models.gemma.modeling_gemma.GemmaDecoderLayer.__init__"] > 0
    assert report["summary"]["blocked"] == 0


@pytest.mark.parametrize(("policy", "dtype"), [("pi05", "float32"), ("pi05", "bfloat16"), ("pi0", "float32")])
def test_0_4_4_trains_with_all_optimizations_as_with_none(
    older: Program, tmp_path: Path, policy: str, dtype: str
) -> None:
    settings = (*CHECKPOINTED, f"model.args.policy.type={policy}", f"model.args.policy.dtype={dtype}")
    plain = older.plain(tmp_path / "none", *settings)
    losses, report = older.train(tmp_path / "all", *settings, "optimization.strict=true")
    hits = used(report)
    assert set(hits) == set(GROUPS) - {"ada_rms_norm"}
    assert all(hits.values()), hits
    assert losses == pytest.approx(plain, rel=CLOSE if dtype == "float32" else 5e-3)


@pytest.mark.parametrize("name", ["newest", "older"])
def test_what_is_drawn_in_steps_is_what_is_trained(request: pytest.FixtureRequest, name: str) -> None:
    program: Program = request.getfixturevalue(name)
    script = Path(__file__).with_name("lerobot_inference.py")
    groups = "optimization.groups.lerobot.tiny=true"
    done = program.call("run", f"optimization={program.config}", groups, "--", str(program.python), str(script))
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert done.stdout.count("same velocity") == 2, done.stdout
