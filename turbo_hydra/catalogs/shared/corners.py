# SPDX-License-Identifier: Apache-2.0
"""Reading feature maps between their cells, as weighted sums of rows.

`grid_sample` wants a channel's map in one piece and goes through a point's channels with a stride of the whole map.
Where a cell's channels lie side by side, a point is a sum of four rows: `embedding_bag` with weights, vectorised over
the channels. On a CPU its backward pass is slow, though each part of it is an operation that the library does fast: the
gradient of the rows is a sum of weighted rows again, once the reads are sorted by what they read, and that of the
weights is a product of two dense matrices where a sparse one has entries.
"""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

DTYPES = (torch.float32, torch.float64)
_INT32 = 2**31


class Points(NamedTuple):
    """Where points lie among the cells of their map, by the shares that each side of the cell has of them.

    A side that is outside the map has no share: `there` is 0 then, and else 1.
    """

    left: Tensor
    right: Tensor
    top: Tensor
    bottom: Tensor
    left_there: Tensor
    right_there: Tensor
    top_there: Tensor
    bottom_there: Tensor


def read_between(
    rows: Tensor,
    x: Tensor,
    y: Tensor,
    scale: Tensor,
    width: Tensor | int,
    height: Tensor | int,
    first: Tensor,
    step: int,
) -> Tensor:
    """Sums over points that are read between the cells of their maps, with zeros outside; all inputs have gradients.

    Parameters
    ----------
    rows : Tensor
        [R, D]: the cells' channels.
    x, y : Tensor
        [bags, points] in units of cells, 0 in the middle of a map's first one.
    scale : Tensor
        [bags, points]: what is read is multiplied with it.
    width, height : Tensor or int
        Cells of each point's map, broadcast to [bags, points].
    first : Tensor
        Integers, broadcast likewise: the row of the first cell of each point's map.
    step : int
        How many rows a cell is from the one beside it.

    Returns
    -------
    Tensor
        [bags, D].
    """
    if rows.device.type == "cpu" and not torch.compiler.is_compiling():
        output: Tensor = _Read.apply(rows, x, y, scale, width, height, first, step)  # type: ignore[no-untyped-call]
        return output
    index = _index(x, y, width, height, first, step, len(rows))
    return _sums(rows, index, _weights(_points(x, y, width, height), scale))


def _points(x: Tensor, y: Tensor, width: Tensor | int, height: Tensor | int) -> Points:
    left, top = x.detach().floor(), y.detach().floor()
    there = (
        (left >= 0) & (left < width),
        (left >= -1) & (left < width - 1),
        (top >= 0) & (top < height),
        (top >= -1) & (top < height - 1),
    )
    shares = (1 - (x - left), x - left, 1 - (y - top), y - top)
    masks = [item.to(x.dtype) for item in there]
    return Points(*[share * mask for share, mask in zip(shares, masks, strict=True)], *masks)


def _weights(at: Points, scale: Tensor) -> Tensor:
    """[bags, 4, points]: of the cells above left, above right, below left and below right of each point."""
    top, bottom = at.top * scale, at.bottom * scale
    return torch.stack((top * at.left, top * at.right, bottom * at.left, bottom * at.right), 1)


def _index(
    x: Tensor, y: Tensor, width: Tensor | int, height: Tensor | int, first: Tensor, step: int, count: int
) -> Tensor:
    """[bags, 4, points]: the rows of these cells; some row of the map for a cell that is outside."""
    kind = torch.int32 if count < _INT32 else torch.int64
    left, top = x.detach().floor(), y.detach().floor()

    def inside(place: Tensor, size: Tensor | int) -> Tensor:
        # Also for what is no number, or too large for an integer.
        return torch.where((place >= 0) & (place < size), place, 0).to(kind)

    columns = inside(left, width) * step, inside(left + 1, width) * step
    above, below = (first + inside(place, height) * (width * step) for place in (top, top + 1))
    cells = (above + columns[0], above + columns[1], below + columns[0], below + columns[1])
    return torch.stack([cell.to(kind) for cell in cells], 1)


def _sums(rows: Tensor, index: Tensor, weights: Tensor) -> Tensor:
    return functional.embedding_bag(index.flatten(1), rows, per_sample_weights=weights.flatten(1), mode="sum")


class _Read(torch.autograd.Function):
    """`read_between` with a backward pass of its own, for CPUs."""

    @staticmethod
    def forward(
        ctx: Any,
        rows: Tensor,
        x: Tensor,
        y: Tensor,
        scale: Tensor,
        width: Tensor | int,
        height: Tensor | int,
        first: Tensor,
        step: int,
    ) -> Tensor:
        index = _index(x, y, width, height, first, step, len(rows))
        ctx.save_for_backward(rows, x, y, scale, index)
        ctx.sizes = width, height
        return _sums(rows, index, _weights(_points(x, y, width, height), scale))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        rows, x, y, scale, index = ctx.saved_tensors
        at = _points(x, y, *ctx.sizes)
        grad = grad.contiguous()
        for_rows = for_x = for_y = for_scale = None
        if ctx.needs_input_grad[0]:
            for_rows = _transposed_sums(grad, index, _weights(at, scale), len(rows))
        if any(ctx.needs_input_grad[1:4]):
            # What each cell would add to the loss by a weight of one: [bags, points] for each of the four.
            nw, ne, sw, se = _products(grad, rows, index).unbind(1)
            above, below = at.left * nw + at.right * ne, at.left * sw + at.right * se
            for_scale = at.top * above + at.bottom * below
            for_y = scale * (at.bottom_there * below - at.top_there * above)
            along_top = at.right_there * ne - at.left_there * nw
            along_bottom = at.right_there * se - at.left_there * sw
            for_x = scale * (at.top * along_top + at.bottom * along_bottom)
        return for_rows, for_x, for_y, for_scale, None, None, None, None


def _transposed_sums(grad: Tensor, index: Tensor, weights: Tensor, count: int) -> Tensor:
    """[count, D]: for each row the sum of the bags' gradients that read it, times its weights, in the bags' order."""
    reads = index.flatten()
    order = reads.sort(stable=True).indices
    # Where each row's reads begin in that order.
    counts = torch.bincount(reads, minlength=count)
    begins = counts.cumsum(0) - counts
    bags = order.div(index[0].numel(), rounding_mode="floor")
    of_reads = weights.flatten().index_select(0, order)
    return functional.embedding_bag(bags, grad, begins, per_sample_weights=of_reads, mode="sum")


def _products(grad: Tensor, rows: Tensor, index: Tensor) -> Tensor:
    """As `index`: the product of a bag's gradient with each row that it reads."""
    bags, each = len(index), index[0].numel()
    begins = torch.arange(0, bags * each + 1, each, dtype=index.dtype)
    entries = torch.sparse_csr_tensor(
        begins, index.flatten(), grad.new_zeros(bags * each), (bags, len(rows)), check_invariants=False
    )
    products: Tensor = torch.sparse.sampled_addmm(entries, grad, rows.t(), beta=0.0).values()
    return products.view(index.shape)


def _without_a_warning() -> None:
    """Have torch say that its sparse matrices are in beta now, once and to nobody, rather than in a user's log."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.sparse_csr_tensor([0, 1], [0], [0.0], (1, 1), check_invariants=False)


_without_a_warning()
