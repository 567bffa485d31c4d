# SPDX-License-Identifier: Apache-2.0
"""The learned positional encoding without its copies, laid out as those that add it want it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from turbo_hydra.catalogs.models.bevformer.constants import Constants

Function = Callable[..., Any]


def forward(original: Function, options: None) -> Function:
    """Factory for mmdet's `LearnedPositionalEncoding.forward`.

    [B, 2 * features, h, w] with the features of a cell side by side: a query and its position lie alike. It is made
    anew at each call, since it is what the weights are now; only the cells' numbers are kept.
    """
    constants = Constants()

    def numbers(count: int, device: torch.device) -> Tensor:
        return constants.get((count, device), lambda: torch.arange(count, device=device))

    def forward(self: Any, mask: Tensor) -> Tensor:
        high, wide = mask.shape[-2:]
        columns = self.col_embed(numbers(wide, mask.device))
        rows = self.row_embed(numbers(high, mask.device))
        cells = torch.cat((columns.expand(high, -1, -1), rows.unsqueeze(1).expand(-1, wide, -1)), -1)
        position = cells.permute(2, 0, 1).unsqueeze(0)
        return position if len(mask) == 1 else position.repeat(len(mask), 1, 1, 1)

    return forward
