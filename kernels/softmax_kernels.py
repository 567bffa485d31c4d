# SPDX-License-Identifier: Apache-2.0
"""The kernels of `softmax`: a program has whole rows, in one block or block by block."""

from __future__ import annotations

from typing import Any

from .language import jit, tl


@jit
def _read(
    scores: Any,
    mask: Any,
    row: Any,
    column: Any,
    rows: Any,
    width: Any,
    masked: Any,
    m_column: Any,
    scale: Any,
    MASK: tl.constexpr,
    ACC: tl.constexpr,
) -> Any:
    inside = (row < rows)[:, None] & (column < width)[None, :]
    x = tl.load(scores + row[:, None] * width + column[None, :], mask=inside, other=0.0).to(ACC) * scale
    if MASK == 1:
        x += tl.load(mask + masked[:, None] + column[None, :] * m_column, mask=inside, other=0.0).to(ACC)
    if MASK == 2:
        keep = tl.load(mask + masked[:, None] + column[None, :] * m_column, mask=inside, other=0) != 0
        x = tl.where(keep, x, float("-inf"))
    return tl.where((column < width)[None, :], x, float("-inf"))


@jit
def forward(
    scores: Any,
    mask: Any,
    out: Any,
    scale: Any,
    rows: Any,
    units: Any,
    heads: Any,
    queries: Any,
    m_entry: Any,
    m_head: Any,
    m_query: Any,
    M_COLUMN: tl.constexpr,
    MASK: tl.constexpr,
    ONE: tl.constexpr,
    ALIGN: tl.constexpr,
    M_ALIGN: tl.constexpr,
    ACC: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """Weights of ROWS rows."""
    # Widths and strides come as multiples of what they are all divisible by, so that the compiler sees how far elements
    # may be moved at once: 984 is no multiple of 16, which is all it asks by itself.
    width = units * ALIGN
    number = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    row = number.to(tl.int64)
    masked = row * 0
    if MASK != 0:
        # Divided as 32 bits, of which there are enough: there are no more programs than that.
        masked = (
            (number // queries // heads).to(tl.int64) * (m_entry * M_ALIGN)
            + (number // queries % heads).to(tl.int64) * (m_head * M_ALIGN)
            + (number % queries).to(tl.int64) * (m_query * M_ALIGN)
        )
    column = tl.arange(0, BLOCK)
    if ONE:
        x = _read(scores, mask, row, column, rows, width, masked, M_COLUMN, scale, MASK, ACC)
        e = tl.exp(x - tl.max(x, axis=1)[:, None])
        y = e / tl.sum(e, axis=1)[:, None]
        inside = (row < rows)[:, None] & (column < width)[None, :]
        tl.store(out + row[:, None] * width + column[None, :], y.to(out.dtype.element_ty), mask=inside)
    else:
        largest = tl.full([ROWS], float("-inf"), dtype=ACC)
        total = tl.zeros([ROWS], dtype=ACC)
        for start in range(0, width, BLOCK):
            x = _read(scores, mask, row, column + start, rows, width, masked, M_COLUMN, scale, MASK, ACC)
            larger = tl.maximum(largest, tl.max(x, axis=1))
            # As long as every key was masked there is no maximum to refer to.
            base = tl.where(larger == float("-inf"), 0.0, larger)
            total = total * tl.exp(largest - base) + tl.sum(tl.exp(x - base[:, None]), axis=1)
            largest = larger
        for start in range(0, width, BLOCK):
            x = _read(scores, mask, row, column + start, rows, width, masked, M_COLUMN, scale, MASK, ACC)
            y = tl.exp(x - largest[:, None]) / total[:, None]
            inside = (row < rows)[:, None] & (column + start < width)[None, :]
            tl.store(out + row[:, None] * width + start + column[None, :], y.to(out.dtype.element_ty), mask=inside)


@jit
def backward(
    grad: Any,
    out: Any,
    grad_scores: Any,
    scale: Any,
    rows: Any,
    units: Any,
    ONE: tl.constexpr,
    ALIGN: tl.constexpr,
    ACC: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """Gradient of the scores, from the weights and their gradient."""
    width = units * ALIGN
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, BLOCK)
    if ONE:
        inside = (row < rows)[:, None] & (column < width)[None, :]
        at = row[:, None] * width + column[None, :]
        d = tl.load(grad + at, mask=inside, other=0.0).to(ACC)
        p = tl.load(out + at, mask=inside, other=0.0).to(ACC)
        # The rounded weights of a row do not add up to 1, and the mean gradient must not be off by what is missing.
        mean = tl.sum(d * p, axis=1) / tl.sum(p, axis=1)
        through = p * (d - mean[:, None]) * scale
        tl.store(grad_scores + at, through.to(grad_scores.dtype.element_ty), mask=inside)
    else:
        total = tl.zeros([ROWS], dtype=ACC)
        weight = tl.zeros([ROWS], dtype=ACC)
        for start in range(0, width, BLOCK):
            inside = (row < rows)[:, None] & (column + start < width)[None, :]
            at = row[:, None] * width + start + column[None, :]
            d = tl.load(grad + at, mask=inside, other=0.0).to(ACC)
            p = tl.load(out + at, mask=inside, other=0.0).to(ACC)
            total += tl.sum(d * p, axis=1)
            weight += tl.sum(p, axis=1)
        mean = total / weight
        for start in range(0, width, BLOCK):
            inside = (row < rows)[:, None] & (column + start < width)[None, :]
            at = row[:, None] * width + start + column[None, :]
            d = tl.load(grad + at, mask=inside, other=0.0).to(ACC)
            p = tl.load(out + at, mask=inside, other=0.0).to(ACC)
            through = p * (d - mean[:, None]) * scale
            tl.store(grad_scores + at, through.to(grad_scores.dtype.element_ty), mask=inside)
