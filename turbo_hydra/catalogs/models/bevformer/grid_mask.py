# SPDX-License-Identifier: Apache-2.0
"""GridMask by two rows of numbers: the same draws, and what is sent to the device is height + width long."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from turbo_hydra import fallback, redecorated
from turbo_hydra.catalogs.models.bevformer.constants import uploaded

Function = Callable[..., Any]


def forward(original: Function, options: None) -> Function:
    """Factory for `GridMask.forward`."""

    def make(inner: Function) -> Function:
        def forward(self: Any, x: Tensor) -> Tensor:
            if self.rotate != 1 or self.offset:
                # Decided before anything is drawn, so that upstream's draws are the same.
                fallback("a mask that is turned or filled")
                result: Tensor = inner(self, x)
                return result
            if np.random.rand() > self.prob or not self.training:
                return x
            count, channels, height, width = x.shape
            period = np.random.randint(2, height)
            self.l = min(max(int(period * self.ratio + 0.5), 1), period - 1)
            starts = np.random.randint(period), np.random.randint(period)
            np.random.randint(self.rotate)  # of one angle, which is 0
            rows = _kept(height, period, starts[0], self.l, cut=self.use_h)
            columns = _kept(width, period, starts[1], self.l, cut=self.use_w)
            both = uploaded(torch.from_numpy(np.concatenate((rows, columns))), x.device)
            mask = both[:height].unsqueeze(1) & both[height:]
            if self.mode == 1:
                mask = ~mask
            return (x.view(-1, height, width) * mask.to(x.dtype)).view(count, channels, height, width)

        return forward

    return redecorated(original, make)


def _kept(length: int, period: int, start: int, cut_length: int, *, cut: bool) -> Any:
    """Which rows the grid leaves: the middle of a mask half as large again."""
    whole = int(1.5 * length)
    kept = np.ones(whole, dtype=bool)
    if cut:
        for index in range(whole // period):
            begin = period * index + start
            kept[begin : min(begin + cut_length, whole)] = False
    first = (whole - length) // 2
    return kept[first : first + length]
