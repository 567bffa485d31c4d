# SPDX-License-Identifier: Apache-2.0
"""The demonstrations: loading, splitting, normalising, and the order in which training sees them."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import Dataset, Sampler

from tiny_vla.tokenizer import WordTokenizer

CAMERAS = ("base", "wrist")


@dataclass
class Demonstrations:
    """All episodes of all tasks, one after the other: N steps.

    ``frames`` [N, cameras, height, width, 3] uint8, ``proprio`` [N, 4] and ``actions`` [N, 4] float32, ``task`` [N]
    index into ``tasks``, ``last`` [N] index of the last step of a step's episode, ``held_out`` [N] bool.
    """

    tasks: list[str]
    instructions: list[str]
    frames: np.ndarray
    proprio: np.ndarray
    actions: np.ndarray
    task: np.ndarray
    last: np.ndarray
    held_out: np.ndarray

    @classmethod
    def load(cls, folder: Path) -> "Demonstrations":
        """Read every ``*.npz`` of ``folder``, in the order of their names."""
        tasks, instructions, parts = [], [], []
        offset = 0
        for number, path in enumerate(sorted(folder.glob("*.npz"))):
            with np.load(path) as file:
                tasks.append(str(file["task"]))
                instructions.append(str(file["instruction"]))
                # Stored with time last, where it compresses well.
                frames = np.stack([file[f"{name}_frames"].transpose(3, 0, 1, 2) for name in CAMERAS], axis=1)
                episode = file["episode"]
                ends = np.cumsum(np.bincount(episode)) - 1
                parts.append(
                    (
                        frames,
                        file["proprio"],
                        file["actions"],
                        np.full(len(episode), number),
                        offset + ends[episode],
                        file["held_out"][episode],
                    )
                )
                offset += len(episode)
        if not parts:
            raise FileNotFoundError(f"no demonstrations (*.npz) in {folder}")
        return cls(tasks, instructions, *(np.concatenate(column) for column in zip(*parts, strict=True)))

    def __len__(self) -> int:
        return len(self.actions)


@dataclass
class Normalizer:
    """Mean and standard deviation of proprioception and actions, taken from the training episodes."""

    proprio_mean: np.ndarray
    proprio_std: np.ndarray
    action_mean: np.ndarray
    action_std: np.ndarray

    @classmethod
    def fit(cls, demos: Demonstrations) -> "Normalizer":
        proprio, actions = demos.proprio[~demos.held_out], demos.actions[~demos.held_out]
        return cls(proprio.mean(0), proprio.std(0) + 1e-6, actions.mean(0), actions.std(0) + 1e-6)

    def proprio(self, value: np.ndarray) -> np.ndarray:
        return (value - self.proprio_mean) / self.proprio_std

    def actions(self, value: np.ndarray) -> np.ndarray:
        return (value - self.action_mean) / self.action_std

    def raw_actions(self, value: torch.Tensor) -> torch.Tensor:
        """Undo ``actions`` for a tensor [..., 4]."""
        return value * torch.as_tensor(self.action_std) + torch.as_tensor(self.action_mean)


class ActionChunks(Dataset[dict[str, torch.Tensor]]):
    """One sample a step: what is seen there and the next ``horizon`` actions (the last one repeated at the end)."""

    def __init__(
        self, demos: Demonstrations, normalizer: Normalizer, horizon: int, instruction_length: int, held_out: bool
    ) -> None:
        self.demos = demos
        self.normalizer = normalizer
        self.horizon = horizon
        self.steps = np.flatnonzero(demos.held_out == held_out)
        tokenizer = WordTokenizer(demos.instructions)
        self.tokens = [tokenizer.encode(text, instruction_length) for text in demos.instructions]

    def __len__(self) -> int:
        return len(self.steps)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        demos = self.demos
        step = self.steps[index]
        chunk = np.minimum(np.arange(step, step + self.horizon), demos.last[step])
        tokens, token_mask = self.tokens[demos.task[step]]
        images = torch.from_numpy(demos.frames[step]).permute(0, 3, 1, 2)  # [cameras, 3, height, width]
        return {
            "images": images.float() / 127.5 - 1.0,
            "tokens": tokens,
            "token_mask": token_mask,
            "proprio": torch.from_numpy(self.normalizer.proprio(demos.proprio[step])),
            "actions": torch.from_numpy(self.normalizer.actions(demos.actions[chunk])),
            "task": torch.tensor(demos.task[step]),
        }


class EndlessBatches(Sampler[list[int]]):
    """Batches without end, each epoch in a new order; every rank sees its own part of the same order.

    What step n sees depends on the seed and n alone, so that a resumed run goes on where the first one stopped.
    """

    def __init__(self, size: int, batch_size: int, seed: int, start: int = 0, rank: int = 0, ranks: int = 1) -> None:
        self.size = size
        self.batch_size = batch_size
        self.seed = seed
        self.start = start
        self.rank = rank
        self.ranks = ranks
        self.batches = size // (batch_size * ranks)
        if self.batches == 0:
            raise ValueError(f"{ranks} ranks x {batch_size} samples a step are more than the {size} samples there are")

    def __iter__(self) -> Iterator[list[int]]:
        step = self.start
        while True:
            epoch, first = divmod(step, self.batches)
            order = np.random.default_rng((self.seed, epoch)).permutation(self.size)
            for batch in range(first, self.batches):
                begin = (batch * self.ranks + self.rank) * self.batch_size
                yield order[begin : begin + self.batch_size].tolist()
                step += 1
