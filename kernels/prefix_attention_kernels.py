# SPDX-License-Identifier: Apache-2.0
"""Triton kernels of `prefix_attention`.

Rows of a tile are TOKENS tokens by GROUP query heads that share a key/value head, so that keys and values are read once
for all of them. The forward is the online softmax. The backward writes the probabilities of some heads at a time: at
head size 256 the accumulators of a fused backward do not fit into a multiprocessor's registers, while plain products
with what was written run near the matrix units' rate.

Exponentials are to the base of 2. The logarithm of a row's sum is infinite where the row may attend to nothing.
"""

from __future__ import annotations

from typing import Any

from .language import jit, tl


@jit
def _rows(i: Any, r: Any, queries: Any, GROUP: tl.constexpr, TOKENS: tl.constexpr) -> Any:
    """Token and head of the rows `r` of tile `i`, and which of them are there."""
    token = i * TOKENS + r // GROUP
    return token, r % GROUP, (r < TOKENS * GROUP) & (token < queries)


@jit
def _bias(
    mask: Any, token: Any, live: Any, key: Any, keys: Any, query_stride: Any, key_stride: Any,
    BOOLEAN: tl.constexpr, ACC: tl.constexpr,
) -> Any:  # fmt: skip
    """What a mask adds to the scores of a tile, in units of the base of 2, and what it leaves visible."""
    inside = live[:, None] & (key < keys)[None, :]
    where = (token.to(tl.int64) * query_stride)[:, None] + (key.to(tl.int64) * key_stride)[None, :]
    value = tl.load(mask + where, mask=inside, other=0)
    if BOOLEAN:
        return tl.zeros(value.shape, ACC), (value != 0) & inside
    return value.to(ACC) * 1.4426950408889634, (value > -3.0e4) & inside


@jit
def forward(
    query: Any, key: Any, value: Any, mask: Any, columns: Any, means: Any, out: Any, lse: Any, queries: Any, keys: Any,
    key_tiles: Any, qb: Any, qh: Any, qt: Any, kb: Any, kh: Any, kt: Any, vb: Any, vh: Any, vt: Any,
    ob: Any, oh: Any, ot: Any, mb: Any, mq: Any, mk: Any,
    KEY_HEADS: tl.constexpr, GROUP: tl.constexpr, TOKENS: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BOOLEAN: tl.constexpr, SCALE: tl.constexpr, ACC: tl.constexpr,
) -> None:  # fmt: skip
    """Online softmax over the key tiles that a row tile sees; first those whose mask need not be read."""
    i = tl.program_id(0)
    z = tl.program_id(1)
    b = (z // KEY_HEADS).to(tl.int64)
    g = (z % KEY_HEADS).to(tl.int64)
    r = tl.arange(0, BLOCK_M)
    n = tl.arange(0, BLOCK_N)
    d = tl.arange(0, BLOCK_D)
    token, head, live = _rows(i, r, queries, GROUP, TOKENS)
    inside = live[:, None] & (d < D)[None, :]
    row = ((g * GROUP + head) * qh + token.to(tl.int64) * qt)[:, None] + d[None, :]
    q = tl.load(query + b * qb + row, mask=inside, other=0.0)
    key += b * kb + g * kh
    value += b * vb + g * vh
    mask += b * mb
    k_tile = n[:, None] * kt + d[None, :]
    v_tile = n[:, None] * vt + d[None, :]
    columns += (b * tl.num_programs(0) + i) * (key_tiles + 3)
    whole = tl.load(columns)
    looked_at = tl.load(columns + 1)
    columns += 2
    highest = tl.full((BLOCK_M,), float("-inf"), ACC)
    total = tl.zeros((BLOCK_M,), ACC)
    acc = tl.zeros((BLOCK_M, BLOCK_D), ACC)
    # The next tile's index is read one tile ahead: the pipeline then counts only keys and values as its loads.
    j = tl.load(columns).to(tl.int64) * BLOCK_N
    for t in range(0, whole):
        if D == BLOCK_D:
            k = tl.load(key + j * kt + k_tile)
        else:
            k = tl.load(key + j * kt + k_tile, mask=(d < D)[None, :], other=0.0)
        s = tl.dot(q, tl.trans(k), input_precision="ieee", out_dtype=ACC)
        higher = tl.maximum(highest, tl.max(s, 1) * (SCALE * 1.4426950408889634))
        p = tl.exp2(s * (SCALE * 1.4426950408889634) - higher[:, None])
        shrink = tl.exp2(highest - higher)
        total = total * shrink + tl.sum(p, 1)
        acc = acc * shrink[:, None]
        if D == BLOCK_D:
            v = tl.load(value + j * vt + v_tile)
        else:
            v = tl.load(value + j * vt + v_tile, mask=(d < D)[None, :], other=0.0)
        acc = tl.dot(p.to(v.dtype), v, acc, input_precision="ieee", out_dtype=ACC)
        highest = higher
        j = tl.load(columns + t + 1).to(tl.int64) * BLOCK_N
    for t in range(whole, looked_at):
        at = tl.load(columns + t) * BLOCK_N + n
        there = (at < keys)[:, None] & (d < D)[None, :]
        k = tl.load(key + (at.to(tl.int64) * kt)[:, None] + d[None, :], mask=there, other=0.0)
        bias, seen = _bias(mask, token, live, at, keys, mq, mk, BOOLEAN, ACC)
        s = tl.dot(q, tl.trans(k), input_precision="ieee", out_dtype=ACC) * (SCALE * 1.4426950408889634) + bias
        s = tl.where(seen, s, float("-inf"))
        higher = tl.maximum(highest, tl.max(s, 1))
        # A row that has seen no key yet has nothing to subtract from.
        base = tl.where(higher == float("-inf"), 0.0, higher)
        p = tl.exp2(s - base[:, None])
        shrink = tl.exp2(highest - base)
        total = total * shrink + tl.sum(p, 1)
        acc = acc * shrink[:, None]
        v = tl.load(value + (at.to(tl.int64) * vt)[:, None] + d[None, :], mask=there, other=0.0)
        acc = tl.dot(p.to(v.dtype), v, acc, input_precision="ieee", out_dtype=ACC)
        highest = higher
    # Each key that is seen adds something, and the highest of them 1; a row of NaN is not blind.
    blind = live & (total == 0.0)
    to = out + b * ob + ((g * GROUP + head) * oh + token.to(tl.int64) * ot)[:, None] + d[None, :]
    tl.store(to, (acc / total[:, None]).to(out.dtype.element_ty), mask=inside & (blind == 0)[:, None])
    sums = tl.where(live & (blind == 0), highest + tl.log2(total), float("inf"))
    tl.store(lse + (z.to(tl.int64) * tl.num_programs(0) + i) * BLOCK_M + r, sums)
    # The library's softmax of a row of equal scores: such a row attends to all keys alike, hidden ones too.
    mean = tl.load(means + z.to(tl.int64) * D + d, mask=d < D, other=0.0)
    mean = tl.broadcast_to(mean[None, :], (BLOCK_M, BLOCK_D))
    tl.store(to, mean.to(out.dtype.element_ty), mask=inside & blind[:, None])


@jit
def delta(
    grad: Any, out: Any, lse: Any, deltas: Any, wanted: Any, queries: Any,
    gb: Any, gh: Any, gt: Any, ob: Any, oh: Any, ot: Any,
    KEY_HEADS: tl.constexpr, GROUP: tl.constexpr, TOKENS: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr,
    BLOCK_M: tl.constexpr, ACC: tl.constexpr,
) -> None:  # fmt: skip
    """Each row's sum of gradient times output, and what `prefix_mask.backward_lists` wants to know of a row tile."""
    i = tl.program_id(0)
    z = tl.program_id(1)
    b = (z // KEY_HEADS).to(tl.int64)
    g = (z % KEY_HEADS).to(tl.int64)
    r = tl.arange(0, BLOCK_M)
    d = tl.arange(0, BLOCK_D)
    token, head, live = _rows(i, r, queries, GROUP, TOKENS)
    inside = live[:, None] & (d < D)[None, :]
    from_grad = ((g * GROUP + head) * gh + token.to(tl.int64) * gt)[:, None] + d[None, :]
    from_out = ((g * GROUP + head) * oh + token.to(tl.int64) * ot)[:, None] + d[None, :]
    do = tl.load(grad + b * gb + from_grad, mask=inside, other=0.0).to(ACC)
    o = tl.load(out + b * ob + from_out, mask=inside, other=0.0).to(ACC)
    at = (z.to(tl.int64) * tl.num_programs(0) + i) * BLOCK_M + r
    tl.store(deltas + at, tl.sum(do * o, 1))
    some = tl.max((do != 0.0).to(tl.int32), 1)
    blind = live & (tl.load(lse + at) == float("inf"))
    want = tl.max(tl.where(blind, 2 * some, some), 0)
    tl.store(wanted + z.to(tl.int64) * tl.num_programs(0) + i, want.to(tl.int8))


@jit
def probabilities(
    query: Any, key: Any, mask: Any, columns: Any, lse: Any, to: Any, first: Any, queries: Any, keys: Any,
    key_tiles: Any, qb: Any, qh: Any, qt: Any, kb: Any, kh: Any, kt: Any, mb: Any, mq: Any, mk: Any,
    KEY_HEADS: tl.constexpr, GROUP: tl.constexpr, TOKENS: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, BOOLEAN: tl.constexpr, SCALE: tl.constexpr,
    ACC: tl.constexpr,
) -> None:  # fmt: skip
    """to[row, key] = probability, for the tiles that are looked at; `first` is this part's first key/value head."""
    i = tl.program_id(0)
    z = first + tl.program_id(1)
    b = (z // KEY_HEADS).to(tl.int64)
    g = (z % KEY_HEADS).to(tl.int64)
    r = tl.arange(0, BLOCK_M)
    n = tl.arange(0, BLOCK_K)
    steps: tl.constexpr = BLOCK_N // BLOCK_K
    d = tl.arange(0, BLOCK_D)
    token, head, live = _rows(i, r, queries, GROUP, TOKENS)
    row = ((g * GROUP + head) * qh + token.to(tl.int64) * qt)[:, None] + d[None, :]
    q = tl.load(query + b * qb + row, mask=live[:, None] & (d < D)[None, :], other=0.0)
    key += b * kb + g * kh
    mask += b * mb
    k_tile = n[:, None] * kt + d[None, :]
    sums = tl.load(lse + (z.to(tl.int64) * tl.num_programs(0) + i) * BLOCK_M + r)
    to += (tl.program_id(1).to(tl.int64) * tl.num_programs(0) + i) * BLOCK_M * key_tiles * BLOCK_N
    to_tile = r[:, None] * (key_tiles * BLOCK_N) + n[None, :]
    columns += (z.to(tl.int64) * tl.num_programs(0) + i) * (key_tiles + 3)
    whole = tl.load(columns)
    looked_at = tl.load(columns + 1)
    columns += 2
    tile = tl.load(columns)
    for t in range(0, whole * steps):
        j = tile * BLOCK_N + (t % steps) * BLOCK_K
        if D == BLOCK_D:
            k = tl.load(key + j.to(tl.int64) * kt + k_tile)
        else:
            k = tl.load(key + j.to(tl.int64) * kt + k_tile, mask=(d < D)[None, :], other=0.0)
        s = tl.dot(q, tl.trans(k), input_precision="ieee", out_dtype=ACC)
        p = tl.exp2(s * (SCALE * 1.4426950408889634) - sums[:, None])
        tl.store(to + j + to_tile, p.to(to.dtype.element_ty))
        tile = tl.load(columns + (t + 1) // steps)
    alike = (live & (sums == float("inf")))[:, None]
    for t in range(whole * steps, looked_at * steps):
        j = tl.load(columns + t // steps) * BLOCK_N + (t % steps) * BLOCK_K
        at = j + n
        there = (at < keys)[:, None] & (d < D)[None, :]
        k = tl.load(key + (at.to(tl.int64) * kt)[:, None] + d[None, :], mask=there, other=0.0)
        bias, seen = _bias(mask, token, live, at, keys, mq, mk, BOOLEAN, ACC)
        s = tl.dot(q, tl.trans(k), input_precision="ieee", out_dtype=ACC) * (SCALE * 1.4426950408889634) + bias
        p = tl.where(seen, tl.exp2(s - sums[:, None]), 0.0)
        p = tl.where(alike & (at < keys)[None, :], tl.full(p.shape, 1.0, ACC) / keys, p)
        tl.store(to + j + to_tile, p.to(to.dtype.element_ty))


@jit
def scores(
    grad: Any, value: Any, columns: Any, deltas: Any, to: Any, first: Any, queries: Any, keys: Any, key_tiles: Any,
    gb: Any, gh: Any, gt: Any, vb: Any, vh: Any, vt: Any,
    KEY_HEADS: tl.constexpr, GROUP: tl.constexpr, TOKENS: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SCALE: tl.constexpr, ACC: tl.constexpr,
) -> None:  # fmt: skip
    """Gradient of the products of queries and keys, written over the probabilities."""
    i = tl.program_id(0)
    z = first + tl.program_id(1)
    b = (z // KEY_HEADS).to(tl.int64)
    g = (z % KEY_HEADS).to(tl.int64)
    r = tl.arange(0, BLOCK_M)
    n = tl.arange(0, BLOCK_K)
    steps: tl.constexpr = BLOCK_N // BLOCK_K
    d = tl.arange(0, BLOCK_D)
    token, head, live = _rows(i, r, queries, GROUP, TOKENS)
    row = ((g * GROUP + head) * gh + token.to(tl.int64) * gt)[:, None] + d[None, :]
    do = tl.load(grad + b * gb + row, mask=live[:, None] & (d < D)[None, :], other=0.0)
    value += b * vb + g * vh
    v_tile = n[:, None] * vt + d[None, :]
    change = tl.load(deltas + (z.to(tl.int64) * tl.num_programs(0) + i) * BLOCK_M + r)
    to += (tl.program_id(1).to(tl.int64) * tl.num_programs(0) + i) * BLOCK_M * key_tiles * BLOCK_N
    to_tile = r[:, None] * (key_tiles * BLOCK_N) + n[None, :]
    columns += (z.to(tl.int64) * tl.num_programs(0) + i) * (key_tiles + 3)
    looked_at = tl.load(columns + 1)
    columns += 2
    tile = tl.load(columns)
    for t in range(0, looked_at * steps):
        j = tile * BLOCK_N + (t % steps) * BLOCK_K
        there = (j + n < keys)[:, None] & (d < D)[None, :]
        v = tl.load(value + j.to(tl.int64) * vt + v_tile, mask=there, other=0.0)
        p = tl.load(to + j + to_tile).to(ACC)
        dp = tl.dot(do, tl.trans(v), input_precision="ieee", out_dtype=ACC)
        tl.store(to + j + to_tile, (p * (dp - change[:, None]) * SCALE).to(to.dtype.element_ty))
        tile = tl.load(columns + (t + 1) // steps)


@jit
def key_product(
    left: Any, right: Any, rows: Any, out: Any, first: Any, queries: Any, keys: Any, key_tiles: Any, row_tiles: Any,
    xb: Any, xh: Any, xt: Any, ob: Any, oh: Any, ot: Any,
    KEY_HEADS: tl.constexpr, GROUP: tl.constexpr, TOKENS: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_R: tl.constexpr, ACC: tl.constexpr,
) -> None:  # fmt: skip
    """out[key] = sum over the rows of left[row, key] * right[row]: gradients of values and of keys."""
    j = tl.program_id(0)
    z = first + tl.program_id(1)
    b = (z // KEY_HEADS).to(tl.int64)
    g = (z % KEY_HEADS).to(tl.int64)
    n = tl.arange(0, BLOCK_N)
    d = tl.arange(0, BLOCK_D)
    part = tl.arange(0, BLOCK_R)
    steps: tl.constexpr = BLOCK_M // BLOCK_R
    width = key_tiles * BLOCK_N
    left += tl.program_id(1).to(tl.int64) * row_tiles * BLOCK_M * width + j * BLOCK_N
    right += b * xb + g * GROUP * xh
    rows += (z.to(tl.int64) * key_tiles + j) * (row_tiles + 2)
    count = tl.load(rows)
    rows += 1
    acc = tl.zeros((BLOCK_N, BLOCK_D), ACC)
    i = tl.load(rows)
    for t in range(0, count * steps):
        r = (t % steps) * BLOCK_R + part
        token, head, live = _rows(i, r, queries, GROUP, TOKENS)
        row = (head.to(tl.int64) * xh + token.to(tl.int64) * xt)[:, None] + d[None, :]
        x = tl.load(right + row, mask=live[:, None] & (d < D)[None, :], other=0.0)
        w = tl.load(left + (i.to(tl.int64) * BLOCK_M + r)[:, None] * width + n[None, :])
        acc = tl.dot(tl.trans(w), x, acc, input_precision="ieee", out_dtype=ACC)
        i = tl.load(rows + (t + 1) // steps)
    at = j * BLOCK_N + n
    to = out + b * ob + g * oh + (at.to(tl.int64) * ot)[:, None] + d[None, :]
    tl.store(to, acc.to(out.dtype.element_ty), mask=(at < keys)[:, None] & (d < D)[None, :])


@jit
def row_product(
    left: Any, key: Any, columns: Any, out: Any, first: Any, queries: Any, keys: Any, key_tiles: Any,
    kb: Any, kh: Any, kt: Any, ob: Any, oh: Any, ot: Any,
    KEY_HEADS: tl.constexpr, GROUP: tl.constexpr, TOKENS: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, ACC: tl.constexpr,
) -> None:  # fmt: skip
    """out[row] = sum over the keys of left[row, key] * key[key]: gradient of queries."""
    i = tl.program_id(0)
    z = first + tl.program_id(1)
    b = (z // KEY_HEADS).to(tl.int64)
    g = (z % KEY_HEADS).to(tl.int64)
    r = tl.arange(0, BLOCK_M)
    n = tl.arange(0, BLOCK_K)
    d = tl.arange(0, BLOCK_D)
    token, head, live = _rows(i, r, queries, GROUP, TOKENS)
    steps: tl.constexpr = BLOCK_N // BLOCK_K
    width = key_tiles * BLOCK_N
    left += (tl.program_id(1).to(tl.int64) * tl.num_programs(0) + i) * BLOCK_M * width
    left_tile = r[:, None] * width + n[None, :]
    key += b * kb + g * kh
    k_tile = n[:, None] * kt + d[None, :]
    columns += (z.to(tl.int64) * tl.num_programs(0) + i) * (key_tiles + 3)
    looked_at = tl.load(columns + 1)
    columns += 2
    acc = tl.zeros((BLOCK_M, BLOCK_D), ACC)
    tile = tl.load(columns)
    for t in range(0, looked_at * steps):
        j = tile * BLOCK_N + (t % steps) * BLOCK_K
        w = tl.load(left + j + left_tile)
        k = tl.load(key + j.to(tl.int64) * kt + k_tile, mask=(j + n < keys)[:, None] & (d < D)[None, :], other=0.0)
        acc = tl.dot(w, k, acc, input_precision="ieee", out_dtype=ACC)
        tile = tl.load(columns + (t + 1) // steps)
    to = out + b * ob + ((g * GROUP + head) * oh + token.to(tl.int64) * ot)[:, None] + d[None, :]
    tl.store(to, acc.to(out.dtype.element_ty), mask=live[:, None] & (d < D)[None, :])
