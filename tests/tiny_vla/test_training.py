# SPDX-License-Identifier: Apache-2.0
"""The example as a project of its own: it trains, saves, goes on, and knows nothing of turbo_hydra."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.tiny_vla.reading import errors, losses

Run = Callable[..., str]
SHORT = ("--batch-size", 4, "--log-every", 1, "--no-eval")


def test_it_knows_nothing_of_turbo_hydra(example: Path) -> None:
    for path in example.rglob("*"):
        if path.suffix in {".py", ".txt", ".md"}:
            assert "turbo" not in path.read_text(encoding="utf-8").lower(), path


def test_the_loss_falls(script: Run) -> None:
    found = losses(script("train.py", "--steps", 60, "--batch-size", 8, "--log-every", 1, "--no-eval"))
    assert len(found) == 60
    first, last = (sum(list(found.values())[part]) / 20 for part in (slice(20), slice(-20, None)))
    assert last < 0.8 * first


def test_a_seed_gives_the_same_losses_wherever_the_batches_are_made(script: Run) -> None:
    once = losses(script("train.py", "--steps", 3, *SHORT))
    assert losses(script("train.py", "--steps", 3, *SHORT, "--num-workers", 1)) == once
    assert losses(script("train.py", "--steps", 3, *SHORT, "--seed", 1)) != once


def test_a_resumed_run_goes_on_exactly(script: Run, tmp_path: Path) -> None:
    through = losses(script("train.py", "--steps", 5, *SHORT, "--output", tmp_path, "--save-every", 3))
    assert sorted(path.name for path in tmp_path.glob("*.pt")) == ["checkpoint.pt", "step-3.pt"]
    resumed = losses(script("train.py", "--steps", 5, *SHORT, "--resume", tmp_path / "step-3.pt", "--output", tmp_path))
    assert resumed == {step: through[step] for step in (4, 5)}
    saved = torch.load(tmp_path / "checkpoint.pt")
    assert saved["step"] == 5
    assert {int(state["step"]) for state in saved["optimizer"]["state"].values()} == {5}


def test_a_saved_policy_is_evaluated_as_at_the_end_of_training(script: Run, tmp_path: Path) -> None:
    trained = errors(script("train.py", "--steps", 2, "--batch-size", 4, "--eval-stride", 40, "--output", tmp_path))
    assert errors(script("evaluate.py", tmp_path / "checkpoint.pt", "--stride", 40)) == trained
    assert set(trained) == {"button-press-topdown-v3", "drawer-close-v3", "reach-v3", "all", "still"}


@pytest.mark.slow
def test_two_ranks_train_and_go_on(script: Run, tmp_path: Path) -> None:
    text = script("train.py", "--steps", 4, *SHORT, "--output", tmp_path, "--save-every", 2, ranks=2)
    assert "2 rank(s)" in text
    through = losses(text)
    assert list(through) == [1, 2, 3, 4]
    resumed = losses(script("train.py", "--steps", 4, *SHORT, "--resume", tmp_path / "step-2.pt", ranks=2))
    assert resumed == {step: through[step] for step in (3, 4)}


@pytest.mark.slow
@pytest.mark.timeout(1000)  # a minute and a half on a core of its own
def test_the_default_run_beats_the_mean_action_on_held_out_episodes(script: Run) -> None:
    text = script("train.py", seconds=900)
    found, held_out = losses(text), errors(text)
    assert found[200] < 0.5 * found[10]
    assert held_out["all"] < 0.8 * held_out["still"]
