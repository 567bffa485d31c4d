# SPDX-License-Identifier: Apache-2.0
"""Camera images as arrays of their own, and no file decoded twice while it is kept."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from turbo_hydra import fallback
from turbo_hydra.catalogs.models.bevformer.options import Data

Function = Callable[..., Any]


def load(original: Function, options: Data) -> Function:
    """Factory for mmdet3d's `LoadMultiViewImageFromFiles.__call__`.

    Upstream stacks all cameras along the last axis and hands out slices of the stack, in which a pixel's channels lie
    as far apart as there are cameras: whatever augments them strides through all cameras' memory. The arrays here have
    the same values, and are the caller's to write into.
    """
    kept: OrderedDict[Any, list[Any]] = OrderedDict()
    names = original.__globals__

    def decoded(files: Sequence[str], color_type: str) -> list[Any]:
        key = (tuple(files), color_type)
        if key in kept:
            kept.move_to_end(key)
            return kept[key]
        images = [names["mmcv"].imread(file, color_type) for file in files]
        if options.frames > 0:
            kept[key] = images
            while len(kept) > options.frames:
                kept.popitem(last=False)
        return images

    def __call__(self: Any, results: dict[str, Any]) -> Any:
        files = results["img_filename"]
        if len(files) == 0:
            fallback("no images")
            return original(self, results)
        images = decoded(files, self.color_type)
        if any(image is None or image.shape != images[0].shape for image in images):
            fallback("images of different shapes")
            return original(self, results)
        dtype = np.float32 if self.to_float32 else np.result_type(*images)
        shape = (*images[0].shape, len(images))
        channels = 1 if len(shape) < 3 else shape[2]
        results["filename"] = files
        # Copies also where nothing is converted: augmentation writes into them.
        results["img"] = [image.astype(dtype) for image in images]
        results["img_shape"] = results["ori_shape"] = results["pad_shape"] = shape
        results["scale_factor"] = 1.0
        results["img_norm_cfg"] = {
            "mean": np.zeros(channels, dtype=np.float32),
            "std": np.ones(channels, dtype=np.float32),
            "to_rgb": False,
        }
        return results

    return __call__
