# SPDX-License-Identifier: Apache-2.0
"""Cameras and prompt tokens that the whole batch masks are left out before they are embedded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from turbo_hydra import fallback
from turbo_hydra.catalogs.models.openpi.options import PrefixTrim

Function = Callable[..., Any]


def preprocess_observation(original: Function, options: PrefixTrim) -> Function:
    """Factory for `PI0Pytorch._preprocess_observation`, which gives images, their masks, tokens, their mask and state.

    The random augmentation has been drawn by then, for all cameras. Positions are counted over valid tokens, and masked
    ones have no weight anywhere, so that what is left computes what it did.
    """

    def _preprocess_observation(self: Any, observation: Any, *, train: bool = True) -> Any:
        images, image_masks, tokens, token_mask, state = original(self, observation, train=train)
        reason = _unfit(image_masks, tokens, token_mask)
        if reason is not None:
            fallback(reason)
            return images, image_masks, tokens, token_mask, state
        # One transfer for all that is asked. The script has just waited for the batch to reach the device.
        used = torch.cat((torch.stack(image_masks).any(dim=1), token_mask.any(dim=0))).tolist()
        cameras, prompt = used[: len(image_masks)], used[len(image_masks) :]
        if not any(cameras) or not any(prompt):
            fallback("nothing is valid")
            return images, image_masks, tokens, token_mask, state
        if options.cameras:
            images = [image for image, keep in zip(images, cameras, strict=True) if keep]
            image_masks = [mask for mask, keep in zip(image_masks, cameras, strict=True) if keep]
        length = kept_length(prompt, options.bucket)
        return images, image_masks, tokens[:, :length], token_mask[:, :length], state

    return _preprocess_observation


def kept_length(used: list[bool], bucket: int) -> int:
    """Tokens of the prompt that are kept: up to the last used one, rounded up to `bucket`, all where that is 0."""
    if bucket <= 0:
        return len(used)
    longest = max(index for index, valid in enumerate(used) if valid) + 1
    return min(len(used), -(-longest // bucket) * bucket)


def _unfit(image_masks: Any, tokens: Any, token_mask: Any) -> str | None:
    """Why this observation stays as it is; None if it can be trimmed."""
    if torch.compiler.is_compiling():
        return "compiling"
    if not isinstance(tokens, Tensor) or not isinstance(token_mask, Tensor) or not image_masks:
        return "no prompt or no image"
    masks = [*image_masks, token_mask]
    if not all(isinstance(mask, Tensor) and mask.dtype == torch.bool for mask in masks):
        return "masks that are not boolean"
    if token_mask.shape != tokens.shape or any(mask.shape != tokens.shape[:1] for mask in image_masks):
        return "masks of another shape"
    return None
