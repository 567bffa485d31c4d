# SPDX-License-Identifier: Apache-2.0
"""The kernels of `ada_rms_norm`: a program's rows belong to one batch entry."""

from __future__ import annotations

from typing import Any

from .language import jit, tl


@jit
def forward(
    x: Any,
    residual: Any,
    gate: Any,
    scale: Any,
    shift: Any,
    y: Any,
    h_out: Any,
    inverse: Any,
    eps: Any,
    offset: Any,
    rows: Any,
    width: Any,
    x_stride: Any,
    residual_stride: Any,
    gate_stride: Any,
    scale_stride: Any,
    shift_stride: Any,
    tiles: Any,
    RESIDUAL: tl.constexpr,
    GATE: tl.constexpr,
    SHIFT: tl.constexpr,
    ACC: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """y, h and the inverse root of the mean square of each row."""
    # `rows` are those of one batch entry, and a program's rows are of one entry.
    entry = (tl.program_id(0) // tiles).to(tl.int64)
    within = (tl.program_id(0) % tiles) * ROWS + tl.arange(0, ROWS)
    row = (entry * rows + within)[:, None]
    column = tl.arange(0, BLOCK)
    inside = (within < rows)[:, None] & (column < width)[None, :]
    h = tl.load(x + row * x_stride + column[None, :], mask=inside, other=0.0).to(ACC)
    if RESIDUAL:
        if GATE:
            h *= tl.load(gate + entry * gate_stride + column, mask=column < width, other=0.0).to(ACC)[None, :]
        h += tl.load(residual + row * residual_stride + column[None, :], mask=inside, other=0.0).to(ACC)
        rounded = h.to(h_out.dtype.element_ty)
        tl.store(h_out + row * width + column[None, :], rounded, mask=inside)
        h = rounded.to(ACC)
    r = tl.rsqrt(tl.sum(h * h, axis=1) / width + eps)
    tl.store(inverse + entry * rows + within, r, mask=within < rows)
    s = tl.load(scale + entry * scale_stride + column, mask=column < width, other=0.0).to(ACC)
    out = h * r[:, None] * (offset + s)[None, :]
    if SHIFT:
        out += tl.load(shift + entry * shift_stride + column, mask=column < width, other=0.0).to(ACC)[None, :]
    tl.store(y + row * width + column[None, :], out.to(y.dtype.element_ty), mask=inside)


@jit
def backward(
    grad_y: Any,
    grad_h: Any,
    h: Any,
    x: Any,
    gate: Any,
    scale: Any,
    inverse: Any,
    grad_sum: Any,
    grad_x: Any,
    sums: Any,
    offset: Any,
    rows: Any,
    width: Any,
    grad_y_stride: Any,
    grad_h_stride: Any,
    h_stride: Any,
    x_stride: Any,
    gate_stride: Any,
    scale_stride: Any,
    parts: Any,
    steps: Any,
    FROM_H: tl.constexpr,
    GATE: tl.constexpr,
    SHIFT: tl.constexpr,
    ACC: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
) -> None:
    """Gradients of h and x, and this program's sums for scale, shift and gate."""
    entry = (tl.program_id(0) // parts).to(tl.int64)
    first = (tl.program_id(0) % parts) * steps * ROWS
    column = tl.arange(0, BLOCK)
    there = column < width
    s = offset + tl.load(scale + entry * scale_stride + column, mask=there, other=0.0).to(ACC)
    of_scale = tl.zeros([BLOCK], dtype=ACC)
    of_shift = tl.zeros([BLOCK], dtype=ACC)
    of_gate = tl.zeros([BLOCK], dtype=ACC)
    if GATE:
        g = tl.load(gate + entry * gate_stride + column, mask=there, other=0.0).to(ACC)
    for step in tl.range(0, steps, num_stages=STAGES):
        within = first + step * ROWS + tl.arange(0, ROWS)
        row = (entry * rows + within)[:, None]
        inside = (within < rows)[:, None] & there[None, :]
        d = tl.load(grad_y + row * grad_y_stride + column[None, :], mask=inside, other=0.0).to(ACC)
        normed = tl.load(h + row * h_stride + column[None, :], mask=inside, other=0.0).to(ACC)
        if FROM_H:
            from_h = tl.load(grad_h + row * grad_h_stride + column[None, :], mask=inside, other=0.0).to(ACC)
        if GATE:
            added = tl.load(x + row * x_stride + column[None, :], mask=inside, other=0.0).to(ACC)
        r = tl.load(inverse + entry * rows + within, mask=within < rows, other=0.0)[:, None]
        normed *= r
        of_scale += tl.sum(d * normed, axis=0)
        if SHIFT:
            of_shift += tl.sum(d, axis=0)
        d *= s[None, :]
        through = (d - normed * (tl.sum(d * normed, axis=1) / width)[:, None]) * r
        if FROM_H:
            through += from_h
        tl.store(grad_sum + row * width + column[None, :], through.to(grad_sum.dtype.element_ty), mask=inside)
        if GATE:
            of_gate += tl.sum(through * added, axis=0)
            tl.store(
                grad_x + row * width + column[None, :], (through * g[None, :]).to(grad_x.dtype.element_ty), mask=inside
            )
    # [scale, shift, gate as far as there are, entries * parts, width]
    at = sums + tl.program_id(0).to(tl.int64) * width + column
    each = tl.num_programs(0).to(tl.int64) * width
    tl.store(at, of_scale, mask=there)
    if SHIFT:
        tl.store(at + each, of_shift, mask=there)
    if GATE:
        tl.store(at + each * (2 if SHIFT else 1), of_gate, mask=there)
