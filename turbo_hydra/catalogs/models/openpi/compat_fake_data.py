# SPDX-License-Identifier: Apache-2.0
"""OpenPI's fake data in the layout of real data, and a model of any width to train on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np

if TYPE_CHECKING:
    from turbo_hydra.catalogs.models.openpi.compat import FakeData

# LIBERO has two cameras; its prompts with the discretised state take 60 to 118 of 200 tokens.
_ABSENT = "right_wrist_0_rgb"
_SHORTEST, _LONGEST = 0.30, 0.59
# Coprime to the number of lengths, so that neighbouring samples differ.
_STRIDE = 7

Item = dict[str, Any]


def item(original: Callable[[Any, SupportsIndex], Item], options: FakeData) -> Callable[[Any, SupportsIndex], Item]:
    """Factory for `FakeDataset.__getitem__`: images [C, H, W], masks as in real data."""

    def __getitem__(self: Any, index: SupportsIndex) -> Item:
        sample = original(self, index)
        sample["image"] = {name: _channels_first(image) for name, image in sample["image"].items()}
        libero = options.masks == "libero"
        sample["image_mask"] = {
            name: np.full(np.shape(mask), not (libero and name == _ABSENT))
            for name, mask in sample["image_mask"].items()
        }
        prompt = sample.get("tokenized_prompt_mask")
        if prompt is not None:
            length = np.shape(prompt)[-1]
            valid = prompt_length(index.__index__(), length) if libero else length
            sample["tokenized_prompt_mask"] = np.arange(length) < valid
        return sample

    return __getitem__


def prompt_length(index: int, padded: int) -> int:
    """Tokens of the prompt of a sample, between 30 and 59 % of those that it is padded to; the same in each epoch."""
    shortest, longest = int(padded * _SHORTEST), int(padded * _LONGEST)
    return max(1, shortest + index * _STRIDE % (longest - shortest + 1))


def projector(original: Callable[[Any, Any], None], options: FakeData) -> Callable[[Any, Any], None]:
    """Factory for `PaliGemmaMultiModalProjector.__init__`: as wide as the language model that gets the features."""

    def __init__(self: Any, config: Any) -> None:
        config.vision_config.projection_dim = config.text_config.hidden_size
        original(self, config)

    return __init__


def _channels_first(image: Any) -> np.ndarray[Any, np.dtype[np.float32]]:
    array = np.asarray(image, dtype=np.float32)
    return np.ascontiguousarray(np.moveaxis(array, -1, 0)) if array.shape[-1] == 3 else array
