# SPDX-License-Identifier: Apache-2.0
"""The demonstrations are what their page says, and held-out episodes stay out of training."""

from __future__ import annotations

import hashlib
import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tiny_vla.data import ActionChunks, Demonstrations, EndlessBatches, Normalizer
from tiny_vla.tokenizer import PAD, UNKNOWN, WordTokenizer

STEPS = {"button-press-topdown-v3": 566, "drawer-close-v3": 679, "reach-v3": 409}
EPISODES = 16


@pytest.fixture(scope="module")
def demos(example: Path) -> Demonstrations:
    return Demonstrations.load(example / "data")


def test_the_files_have_the_recorded_sums(example: Path) -> None:
    lines = (example / "data" / "SHA256SUMS").read_text().splitlines()
    recorded = {name: digest for digest, name in (line.split() for line in lines)}
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (example / "data").glob("*.npz")}
    assert found == recorded
    assert set(recorded) == {f"{task}.npz" for task in STEPS}


def test_every_file_has_the_arrays_of_its_page(example: Path) -> None:
    for task, steps in STEPS.items():
        with np.load(example / "data" / f"{task}.npz") as file:
            assert str(file["task"]) == task
            for camera in ("base", "wrist"):
                assert file[f"{camera}_frames"].shape == (48, 48, 3, steps)
                assert file[f"{camera}_frames"].dtype == np.uint8
            assert file["proprio"].shape == file["actions"].shape == (steps, 4)
            assert file["proprio"].dtype == file["actions"].dtype == np.float32
            assert np.abs(file["actions"]).max() <= 1.0
            assert file["held_out"].tolist() == [False] * 13 + [True] * 3
            assert np.unique(file["episode"]).tolist() == list(range(EPISODES))
            assert (np.diff(file["episode"]) >= 0).all()


def test_tasks_come_in_the_order_of_their_names(demos: Demonstrations) -> None:
    assert demos.tasks == sorted(STEPS)
    assert len(demos) == sum(STEPS.values()) == 1654
    assert np.bincount(demos.task).tolist() == [STEPS[task] for task in sorted(STEPS)]
    assert demos.frames.shape == (1654, 2, 48, 48, 3)


def test_no_held_out_episode_begins_like_a_training_episode(demos: Demonstrations) -> None:
    first = np.flatnonzero(np.diff(demos.last, prepend=-1))
    assert len(first) == len(STEPS) * EPISODES
    train = {demos.frames[step].tobytes() for step in first if not demos.held_out[step]}
    held_out = {demos.frames[step].tobytes() for step in first if demos.held_out[step]}
    assert len(train) == 39
    assert len(held_out) == 9
    assert not train & held_out


def test_frames_show_something_that_moves(demos: Demonstrations) -> None:
    for task in range(len(STEPS)):
        frames = demos.frames[demos.task == task].astype(np.float32)
        assert frames.std(axis=0).max() > 30  # of 255


def test_a_sample_ends_with_its_episode(demos: Demonstrations) -> None:
    samples = ActionChunks(demos, Normalizer.fit(demos), horizon=10, instruction_length=12, held_out=False)
    step = int(demos.last[0])
    last = samples[samples.steps.tolist().index(step)]
    assert last["actions"].shape == (10, 4)
    assert (last["actions"] == last["actions"][0]).all()
    assert torch.allclose(samples.normalizer.raw_actions(last["actions"][0]), torch.from_numpy(demos.actions[step]))
    before = samples[samples.steps.tolist().index(step - 3)]
    raw = samples.normalizer.raw_actions(before["actions"])
    assert torch.allclose(raw[:4], torch.from_numpy(demos.actions[step - 3 : step + 1]), atol=1e-6)
    assert before["images"].shape == (2, 3, 48, 48)
    assert -1.0 <= before["images"].min() < before["images"].max() <= 1.0


def test_training_and_held_out_samples_are_all_steps_once(demos: Demonstrations) -> None:
    normalizer = Normalizer.fit(demos)
    parts = [ActionChunks(demos, normalizer, 10, 12, held_out=part).steps for part in (False, True)]
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(len(demos)))
    assert (len(parts[0]), len(parts[1])) == (1346, 308)


def test_normalized_training_actions_have_mean_0_and_deviation_1(demos: Demonstrations) -> None:
    actions = Normalizer.fit(demos).actions(demos.actions[~demos.held_out])
    assert np.allclose(actions.mean(0), 0, atol=1e-4)
    assert np.allclose(actions.std(0), 1, atol=1e-3)


def test_words_are_numbered_by_the_alphabet() -> None:
    tokens, mask = WordTokenizer(["press the button", "reach the ball"]).encode("reach the Moon", 5)
    assert tokens.tolist() == [5, 6, UNKNOWN, PAD, PAD]  # ball button press reach the
    assert mask.tolist() == [True, True, True, False, False]


@given(st.integers(1, 40), st.integers(1, 5), st.integers(1, 3), st.integers(0, 9))
def test_an_epoch_shows_every_sample_at_most_once(size: int, batch_size: int, ranks: int, seed: int) -> None:
    if size < batch_size * ranks:
        with pytest.raises(ValueError, match="more than"):
            EndlessBatches(size, batch_size, seed, ranks=ranks)
        return
    samplers = [EndlessBatches(size, batch_size, seed, rank=rank, ranks=ranks) for rank in range(ranks)]
    epoch = [list(itertools.islice(sampler, sampler.batches)) for sampler in samplers]
    seen = [index for batches in epoch for batch in batches for index in batch]
    assert len(seen) == len(set(seen)) == samplers[0].batches * batch_size * ranks
    assert size - len(seen) < batch_size * ranks
    assert all(0 <= index < size for index in seen)


@given(st.integers(0, 25), st.integers(0, 5))
def test_batches_that_start_later_are_the_same_batches(start: int, seed: int) -> None:
    through = list(itertools.islice(EndlessBatches(20, 3, seed), start + 8))
    assert list(itertools.islice(EndlessBatches(20, 3, seed, start), 8)) == through[start:]
