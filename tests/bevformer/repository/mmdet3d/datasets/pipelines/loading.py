# SPDX-License-Identifier: Apache-2.0
import mmcv
import numpy as np


class LoadMultiViewImageFromFiles:
    def __init__(self, to_float32=False, color_type="unchanged"):
        self.to_float32, self.color_type = to_float32, color_type

    def __call__(self, results):
        filename = results["img_filename"]
        img = np.stack([mmcv.imread(name, self.color_type) for name in filename], axis=-1)
        if self.to_float32:
            img = img.astype(np.float32)
        results["filename"] = filename
        results["img"] = [img[..., i] for i in range(img.shape[-1])]
        results["img_shape"] = img.shape
        results["ori_shape"] = img.shape
        results["pad_shape"] = img.shape
        results["scale_factor"] = 1.0
        channels = 1 if len(img.shape) < 3 else img.shape[2]
        results["img_norm_cfg"] = {
            "mean": np.zeros(channels, dtype=np.float32),
            "std": np.ones(channels, dtype=np.float32),
            "to_rgb": False,
        }
        return results
