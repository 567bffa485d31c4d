# SPDX-License-Identifier: Apache-2.0
"""Augmentation, reduced to one random number a camera: what matters is that each camera draws from the generator."""

from types import SimpleNamespace

import torch

IMAGE_KEYS = ("base_0_rgb", "left_wrist_0_rgb", "right_wrist_0_rgb")


def preprocess_observation_pytorch(observation, *, train=False, image_keys=IMAGE_KEYS, image_resolution=(8, 8)):
    images = {key: observation.images[key] for key in image_keys}
    if train:
        images = {key: image * (0.7 + 0.6 * torch.rand(1, device=image.device)) for key, image in images.items()}
    masks = {
        key: observation.image_masks.get(key, torch.ones(len(image), dtype=torch.bool, device=image.device))
        for key, image in images.items()
    }
    return SimpleNamespace(
        images=images,
        image_masks=masks,
        state=observation.state,
        tokenized_prompt=observation.tokenized_prompt,
        tokenized_prompt_mask=observation.tokenized_prompt_mask,
    )
