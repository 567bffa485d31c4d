# SPDX-License-Identifier: Apache-2.0
"""The images of all cameras go through the encoder in one pass."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor

from turbo_hydra import fallback

Function = Callable[..., Any]
# Upstream's local function by which an image is embedded.
_EMBEDS = "image_embed_func"


class _Cameras:
    """Images of a batch that are embedded together when the first is asked for."""

    def __init__(self, images: list[Tensor]) -> None:
        self._images, self._embedded = images, list[Tensor]()

    def embedded(self, image: Tensor, embed: Callable[[Tensor], Tensor]) -> Tensor:
        """What `embed` makes of one of the images."""
        at = next(index for index, item in enumerate(self._images) if item is image)
        if not self._embedded:
            together = embed(torch.cat(self._images))
            self._embedded = list(together.split([len(item) for item in self._images]))
        return self._embedded[at]


_cameras: ContextVar[_Cameras | None] = ContextVar("cameras", default=None)


def embed_prefix(original: Function, options: None) -> Function:
    """Factory for `PI0Pytorch.embed_prefix`, which embeds images [B, C, H, W] one camera after the other."""

    def embed_prefix(self: Any, images: Any, img_masks: Any, lang_tokens: Any, lang_masks: Any) -> Any:
        reason = _unfit(self, images)
        if reason is not None:
            fallback(reason)
            return original(self, images, img_masks, lang_tokens, lang_masks)
        token = _cameras.set(_Cameras(list(images)))
        try:
            return original(self, images, img_masks, lang_tokens, lang_masks)
        finally:
            _cameras.reset(token)

    return embed_prefix


def apply_checkpoint(original: Function, options: None) -> Function:
    """Factory for `PI0Pytorch._apply_checkpoint`, through which each part of the model is called."""

    def _apply_checkpoint(self: Any, func: Function, *args: Any, **kwargs: Any) -> Any:
        cameras = _cameras.get()
        if cameras is None or getattr(func, "__name__", "") != _EMBEDS:
            fallback("another part of the model, or cameras one by one")
            return original(self, func, *args, **kwargs)
        (image,) = args
        return cameras.embedded(image, lambda images: original(self, func, images, **kwargs))

    return _apply_checkpoint


def _unfit(model: Any, images: Any) -> str | None:
    """Why cameras are embedded one by one; None if they can be together."""
    if not model.training or torch.compiler.is_compiling():
        return "not training, or compiled as a whole"
    if len(images) < 2:
        return "one camera"
    first = images[0]
    if any(type(item) is not Tensor or item.shape[1:] != first.shape[1:] for item in images):
        return "images of different sizes"
    if any(item.dtype != first.dtype or item.device != first.device for item in images):
        return "images of different dtypes or devices"
    return None
