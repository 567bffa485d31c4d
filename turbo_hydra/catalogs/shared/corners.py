# SPDX-License-Identifier: Apache-2.0
"""Reading feature maps between their cells, as a weighted sum of rows.

`grid_sample` wants a channel's map in one piece and goes through a point's channels with a stride of the whole map.
Where a cell's channels lie side by side, a point is a sum of four rows: `embedding_bag` with weights, vectorised over
the channels, whose gradients are the library's too.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

DTYPES = (torch.float32, torch.float64)


def corners(x: Tensor, y: Tensor, width: Tensor | int, height: Tensor | int) -> tuple[Tensor, Tensor]:
    """The four cells around each point and their weights.

    Parameters
    ----------
    x, y : Tensor
        Places of points in units of cells, 0 in the middle of the first one; any shape, and the same.
    width, height : Tensor or int
        Cells of the map, broadcast to the points.

    Returns
    -------
    tuple[Tensor, Tensor]
        [..., 4] each: indices of cells within the map, row by row, and weights, through which gradients come to the
        points. A cell outside the map has weight 0 and index 0.
    """
    left, top = x.detach().floor(), y.detach().floor()
    right_share, lower_share = x - left, y - top
    columns = torch.stack((left, left + 1), -1)
    rows = torch.stack((top, top + 1), -1)
    wide, high = (item.unsqueeze(-1) if isinstance(item, Tensor) else item for item in (width, height))
    column_there = (columns >= 0) & (columns < wide)
    row_there = (rows >= 0) & (rows < high)
    across = torch.stack((1 - right_share, right_share), -1) * column_there
    down = torch.stack((1 - lower_share, lower_share), -1) * row_there
    weights = (down.unsqueeze(-1) * across.unsqueeze(-2)).flatten(-2)
    # A number too large for an integer is outside anyway.
    columns = torch.where(column_there, columns, 0).long()
    rows = torch.where(row_there, rows, 0).long()
    cells = (rows * wide).unsqueeze(-1) + columns.unsqueeze(-2)
    return cells.flatten(-2), weights


def weighted_rows(rows: Tensor, index: Tensor, weights: Tensor) -> Tensor:
    """[bags, width]: for each bag the sum of the rows that `index` [bags, n] names, times `weights` [bags, n]."""
    return functional.embedding_bag(index, rows, per_sample_weights=weights, mode="sum")
