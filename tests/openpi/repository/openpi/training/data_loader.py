# SPDX-License-Identifier: Apache-2.0
"""Random samples, with nothing valid in them, as upstream's."""

import dataclasses

import numpy as np
import torch
from torch.utils._pytree import tree_map

from openpi.models_pytorch.preprocessing_pytorch import IMAGE_KEYS


class FakeDataset:
    def __init__(self, padded=12):
        self.padded = padded

    def __getitem__(self, index):
        numbers = np.random.default_rng(index.__index__())
        return {
            "image": {key: numbers.uniform(-1, 1, (8, 8, 3)).astype(np.float32) for key in IMAGE_KEYS},
            "image_mask": {key: np.zeros((), np.bool_) for key in IMAGE_KEYS},
            "state": numbers.uniform(-1, 1, 5).astype(np.float32),
            "tokenized_prompt": numbers.integers(0, 64, self.padded),
            "tokenized_prompt_mask": np.zeros(self.padded, np.bool_),
            "token_ar_mask": None,
            "actions": numbers.uniform(-1, 1, (3, 5)).astype(np.float32),
        }

    def __len__(self):
        return 8


def _collate_fn(items):
    # For upstream's trees, which are jax's, None is no leaf.
    return tree_map(lambda *parts: None if parts[0] is None else np.stack([np.asarray(part) for part in parts]), *items)


@dataclasses.dataclass(frozen=True)
class Observation:
    images: dict
    image_masks: dict
    state: torch.Tensor
    tokenized_prompt: torch.Tensor
    tokenized_prompt_mask: torch.Tensor
    token_ar_mask: torch.Tensor | None = None


class DataLoaderImpl:
    def __init__(self, data_loader):
        self._data_loader = data_loader

    def __iter__(self):
        for arrays in self._data_loader:
            batch = tree_map(lambda item: None if item is None else torch.as_tensor(item), arrays)
            images = {
                key: image.movedim(-1, 1) if image.shape[-1] == 3 else image for key, image in batch["image"].items()
            }
            yield (
                Observation(
                    images,
                    batch["image_mask"],
                    batch["state"],
                    batch["tokenized_prompt"],
                    batch["tokenized_prompt_mask"],
                ),
                batch["actions"],
            )
