# SPDX-License-Identifier: Apache-2.0
"""What the programs of a backward summed up, added in a fixed order: so gradients are the same in each run."""

from __future__ import annotations

from typing import Any

import torch

from .language import accumulator, cdiv, jit, on, tl

_PARTS, _COLUMNS = 64, 32


@jit
def _add(
    sums: Any, out: Any, parts: Any, width: Any, ACC: tl.constexpr, PARTS: tl.constexpr, COLUMNS: tl.constexpr
) -> None:
    group = tl.program_id(1).to(tl.int64)
    column = (tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS))[None, :]
    total = tl.zeros([PARTS, COLUMNS], dtype=ACC)
    for first in range(0, parts, PARTS):
        part = (first + tl.arange(0, PARTS))[:, None]
        inside = (part < parts) & (column < width)
        total += tl.load(sums + (group * parts + part) * width + column, mask=inside, other=0.0)
    added = tl.sum(total, axis=0)[None, :]
    tl.store(out + group * width + column, added.to(out.dtype.element_ty), mask=column < width)


def add_up(sums: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Sums over the middle dimension, in its own precision, rounded once.

    Parameters
    ----------
    sums : Tensor
        [groups, parts, width], contiguous, float32 or float64.
    dtype : torch.dtype
        Of the result.

    Returns
    -------
    Tensor
        [groups, width].
    """
    groups, parts, width = sums.shape
    out = torch.empty(groups, width, dtype=dtype, device=sums.device)
    if out.numel():
        with on(sums.device):
            _add[(cdiv(width, _COLUMNS), groups)](
                sums, out, parts, width, ACC=accumulator(sums.dtype), PARTS=_PARTS, COLUMNS=_COLUMNS
            )
    return out
