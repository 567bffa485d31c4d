# SPDX-License-Identifier: Apache-2.0
"""A small package with the paths and interfaces of mmcv 1.x that BEVFormer uses."""

import numpy as np


def imread(file, flag="color"):
    """An image that its name alone decides."""
    generator = np.random.default_rng(sum(map(ord, str(file))))
    return generator.integers(0, 256, (6, 8, 3), dtype=np.uint8)
