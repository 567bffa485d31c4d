# SPDX-License-Identifier: Apache-2.0
"""Random samples, with nothing valid in them, as upstream's."""

import numpy as np
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
