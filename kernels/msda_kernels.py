# SPDX-License-Identifier: Apache-2.0
"""Triton kernels of `msda`: a program takes some pairs of query and head, and all points of each."""

from __future__ import annotations

from typing import Any

from .language import jit, tl


@jit
def _point(
    locations: Any, at: Any, present: Any, height: Any, across: Any, start: Any, cells: Any,
    IN_CELLS: tl.constexpr, ACC: tl.constexpr,
) -> Any:  # fmt: skip
    """Where a point lies: the cell up and left of it, the way from there, and which of the four cells are there."""
    x = tl.load(locations + at * 2, mask=present, other=0.0).to(ACC)
    y = tl.load(locations + at * 2 + 1, mask=present, other=0.0).to(ACC)
    if not IN_CELLS:
        x = x * across - 0.5
        y = y * height - 0.5
    left = tl.floor(x)
    top = tl.floor(y)
    west = present & (left >= 0) & (left < across)
    east = present & (left >= -1) & (left < across - 1)
    north = (top >= 0) & (top < height)
    south = (top >= -1) & (top < height - 1)
    # A number too large for an integer is outside anyway.
    column = tl.where(west | east, left, 0.0).to(tl.int32)
    row = tl.where(north | south, top, 0.0).to(tl.int32)
    cell = start + row * across + column
    nw = west & north & (cell >= 0) & (cell < cells)
    ne = east & north & (cell >= -1) & (cell + 1 < cells)
    sw = west & south & (cell + across >= 0) & (cell + across < cells)
    se = east & south & (cell + across >= -1) & (cell + across + 1 < cells)
    return x - left, y - top, cell, nw, ne, sw, se


@jit
def _read(value: Any, cell: Any, stride: Any, there: Any, within: Any, ACC: tl.constexpr) -> Any:
    """A cell's channels, zero where it is outside."""
    where = value + (cell.to(tl.int64) * stride)[:, None]
    return tl.load(where, mask=there[:, None] & within, other=0.0).to(ACC)


@jit
def forward(
    value: Any, shapes: Any, starts: Any, locations: Any, weights: Any, out: Any, pairs: Any, cells: Any,
    vb: Any, vs: Any, vh: Any,
    HEADS: tl.constexpr, LEVELS: tl.constexpr, POINTS: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr,
    IN_CELLS: tl.constexpr, ACC: tl.constexpr, BLOCK: tl.constexpr,
) -> None:  # fmt: skip
    """A program takes BLOCK pairs of query and head, which lie side by side in locations, weights and output."""
    pair = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    b = tl.program_id(1).to(tl.int64)
    d = tl.arange(0, BLOCK_D)
    present = pair < pairs
    within = (d < D)[None, :]
    head = value + b * vb + ((pair % HEADS).to(tl.int64) * vh)[:, None] + d[None, :]
    pair = b * pairs + pair
    acc = tl.zeros((BLOCK, BLOCK_D), ACC)
    for level in range(LEVELS):
        height = tl.load(shapes + level * 2).to(tl.int32)
        across = tl.load(shapes + level * 2 + 1).to(tl.int32)
        start = tl.load(starts + level).to(tl.int32)
        for point in tl.static_range(POINTS):
            at = (pair * LEVELS + level) * POINTS + point
            right, down, cell, nw, ne, sw, se = _point(
                locations, at, present, height, across, start, cells, IN_CELLS, ACC
            )
            weight = tl.load(weights + at, mask=present, other=0.0).to(ACC)
            up = (1.0 - down) * weight
            down = down * weight
            acc += ((1.0 - right) * up)[:, None] * _read(head, cell, vs, nw, within, ACC)
            acc += (right * up)[:, None] * _read(head, cell + 1, vs, ne, within, ACC)
            acc += ((1.0 - right) * down)[:, None] * _read(head, cell + across, vs, sw, within, ACC)
            acc += (right * down)[:, None] * _read(head, cell + across + 1, vs, se, within, ACC)
    to = out + (pair * D)[:, None] + d[None, :]
    tl.store(to, acc.to(out.dtype.element_ty), mask=present[:, None] & within)


@jit
def _add(
    sums: Any, cell: Any, stride: Any, there: Any, within: Any, amount: Any, unit: Any, INTEGERS: tl.constexpr
) -> None:
    """Add to a cell's channels; in integers the order of the programs does not matter."""
    where = sums + (cell.to(tl.int64) * stride)[:, None]
    if INTEGERS:
        amount = tl.floor(amount * unit + 0.5).to(tl.int64)
    tl.atomic_add(where, amount, mask=there[:, None] & within, sem="relaxed")


@jit
def backward(
    grad: Any, value: Any, shapes: Any, starts: Any, locations: Any, weights: Any, units: Any,
    sums: Any, grad_locations: Any, grad_weights: Any, pairs: Any, cells: Any, vb: Any, vs: Any, vh: Any,
    HEADS: tl.constexpr, LEVELS: tl.constexpr, POINTS: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr,
    IN_CELLS: tl.constexpr, INTEGERS: tl.constexpr, ACC: tl.constexpr, BLOCK: tl.constexpr,
) -> None:  # fmt: skip
    """As the forward; gradients of locations and weights belong to one program, those of the maps are added up."""
    pair = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    b = tl.program_id(1).to(tl.int64)
    d = tl.arange(0, BLOCK_D)
    present = pair < pairs
    within = (d < D)[None, :]
    head = (pair % HEADS).to(tl.int64)
    values = value + b * vb + (head * vh)[:, None] + d[None, :]
    to = sums + (b * cells * HEADS + head)[:, None] * D + d[None, :]
    pair = b * pairs + pair
    g = tl.load(grad + (pair * D)[:, None] + d[None, :], mask=present[:, None] & within, other=0.0).to(ACC)
    unit = tl.load(units)
    for level in range(LEVELS):
        height = tl.load(shapes + level * 2).to(tl.int32)
        across = tl.load(shapes + level * 2 + 1).to(tl.int32)
        start = tl.load(starts + level).to(tl.int32)
        for point in tl.static_range(POINTS):
            at = (pair * LEVELS + level) * POINTS + point
            right, down, cell, nw, ne, sw, se = _point(
                locations, at, present, height, across, start, cells, IN_CELLS, ACC
            )
            weight = tl.load(weights + at, mask=present, other=0.0).to(ACC)
            left = 1.0 - right
            up = 1.0 - down
            # The gradient's product with each of the four cells gives all that one point needs.
            to_nw = tl.sum(g * _read(values, cell, vs, nw, within, ACC), 1)
            to_ne = tl.sum(g * _read(values, cell + 1, vs, ne, within, ACC), 1)
            to_sw = tl.sum(g * _read(values, cell + across, vs, sw, within, ACC), 1)
            to_se = tl.sum(g * _read(values, cell + across + 1, vs, se, within, ACC), 1)
            for_weight = up * (left * to_nw + right * to_ne) + down * (left * to_sw + right * to_se)
            tl.store(grad_weights + at, for_weight.to(grad_weights.dtype.element_ty), mask=present)
            for_x = (up * (to_ne - to_nw) + down * (to_se - to_sw)) * weight
            for_y = (left * (to_sw - to_nw) + right * (to_se - to_ne)) * weight
            if not IN_CELLS:
                for_x *= across
                for_y *= height
            tl.store(grad_locations + at * 2, for_x.to(grad_locations.dtype.element_ty), mask=present)
            tl.store(grad_locations + at * 2 + 1, for_y.to(grad_locations.dtype.element_ty), mask=present)
            share = g * weight[:, None]
            _add(to, cell, HEADS * D, nw, within, share * (left * up)[:, None], unit, INTEGERS)
            _add(to, cell + 1, HEADS * D, ne, within, share * (right * up)[:, None], unit, INTEGERS)
            _add(to, cell + across, HEADS * D, sw, within, share * (left * down)[:, None], unit, INTEGERS)
            _add(to, cell + across + 1, HEADS * D, se, within, share * (right * down)[:, None], unit, INTEGERS)
