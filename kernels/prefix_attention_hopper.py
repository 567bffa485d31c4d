# SPDX-License-Identifier: Apache-2.0
"""The forward of `prefix_attention` written for sm_90 in Gluon, Triton's lower level.

Triton waits for the products of queries and keys as soon as it has asked for them. Here those of one tile are asked for
together with the last tile's products of probabilities and values, and the softmax of the one runs while the matrix
units are still busy with the other. Keys and values come by the tensor memory accelerator, two tiles ahead.

Gluon's interface changes between Triton's versions: others than `VERSION` take the portable kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch

from .device import device_kind
from .language import INTERPRETED, _annotated, triton

VERSION = "3.6."
_HERE = triton is not None and not INTERPRETED and triton.__version__.startswith(VERSION)
gluon: Any = import_module("triton.experimental.gluon") if _HERE else None
gl: Any = import_module("triton.experimental.gluon.language") if _HERE else None
hopper: Any = import_module("triton.experimental.gluon.language.nvidia.hopper") if _HERE else None
descriptors: Any = import_module("triton.experimental.gluon.nvidia.hopper") if _HERE else None


def jit(kernel: Callable[..., Any]) -> Any:
    """Gluon's `jit`, or the function as it is where there is none; it is then never called."""
    return kernel if gluon is None else gluon.jit(_annotated(kernel))


@jit
def _masked(
    s: Any, mask: Any, i: Any, j: Any, queries: Any, keys: Any, mq: Any, mk: Any,
    GROUP: gl.constexpr, TOKENS: gl.constexpr, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BOOLEAN: gl.constexpr,
    LAYOUT: gl.constexpr,
) -> Any:  # fmt: skip
    """Scores with the mask added, in units of the base of 2; minus infinity where it hides."""
    r = gl.arange(0, BLOCK_M, layout=gl.SliceLayout(1, LAYOUT))
    token = i * TOKENS + r // GROUP
    live = (r < TOKENS * GROUP) & (token < queries)
    key = j * BLOCK_N + gl.arange(0, BLOCK_N, layout=gl.SliceLayout(0, LAYOUT))
    inside = live[:, None] & (key < keys)[None, :]
    where = (token.to(gl.int64) * mq)[:, None] + (key.to(gl.int64) * mk)[None, :]
    value = gl.load(mask + where, mask=inside, other=0)
    if BOOLEAN:
        seen = (value != 0) & inside
    else:
        bias = value.to(gl.float32)
        seen = (bias > -3.0e4) & inside
        s += bias * 1.4426950408889634
    return gl.where(seen, s, float("-inf"))


@jit
def _fetch(
    desc: Any, b: Any, g: Any, tile: Any, barrier: Any, to: Any, wanted: Any, BLOCK_N: gl.constexpr, D: gl.constexpr
) -> None:
    """Ask for a tile; the barrier counts its bytes."""
    hopper.mbarrier.expect(barrier, BLOCK_N * D * 2, pred=wanted)
    hopper.tma.async_copy_global_to_shared(desc, [b, g, tile * BLOCK_N, 0], barrier, to, pred=wanted)


@jit
def _step(
    t: Any, acc: Any, p: Any, total: Any, highest: Any, this: Any, after: Any, count: Any, columns: Any,
    q_memory: Any, k_memory: Any, v_memory: Any, k_there: Any, v_there: Any, k_desc: Any, v_desc: Any,
    b: Any, g: Any, mask: Any, i: Any, queries: Any, keys: Any, mq: Any, mk: Any,
    GROUP: gl.constexpr, TOKENS: gl.constexpr, D: gl.constexpr, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr,
    BOOLEAN: gl.constexpr, MASKED: gl.constexpr, FACTOR: gl.constexpr, SCORES: gl.constexpr, OUT: gl.constexpr,
    LEFT: gl.constexpr, MEMORY: gl.constexpr,
) -> Any:  # fmt: skip
    """Add the last tile's values to `acc`, and make this tile's probabilities meanwhile."""
    dtype: gl.constexpr = q_memory.dtype
    zeros = gl.zeros([BLOCK_M, BLOCK_N], gl.float32, layout=SCORES)
    at = t % 2
    # All warps have read what the last step multiplied: its place is for the next tile. This stands first because the
    # assembler moves waiting for products forward as far as what follows it takes long.
    gl.thread_barrier()
    third = gl.load(columns + t + 2, mask=t + 2 < count, other=0)
    _fetch(k_desc, b, g, after, k_there.index(1 - at), k_memory.index(1 - at), t + 1 < count, BLOCK_N, D)
    _fetch(v_desc, b, g, this, v_there.index(at), v_memory.index(at), True, BLOCK_N, D)
    hopper.mbarrier.wait(k_there.index(at), (t // 2) & 1)
    k = k_memory.index(at)._reinterpret(dtype, [BLOCK_N, D], MEMORY).permute([1, 0])
    s = hopper.warpgroup_mma(q_memory, k, zeros, use_acc=False, is_async=True)
    hopper.mbarrier.wait(v_there.index(1 - at), ((t - 1) // 2) & 1)
    v = v_memory.index(1 - at)._reinterpret(dtype, [BLOCK_N, D], MEMORY)
    product = hopper.warpgroup_mma(p, v, acc, is_async=True)
    s = hopper.warpgroup_mma_wait(1, deps=(s,))
    s = s * FACTOR
    if MASKED:
        s = _masked(s, mask, i, this, queries, keys, mq, mk, GROUP, TOKENS, BLOCK_M, BLOCK_N, BOOLEAN, SCORES)
    higher = gl.maximum(highest, gl.max(s, 1))
    base = gl.where(higher == float("-inf"), 0.0, higher) if MASKED else higher
    weights = gl.exp2(s - base[:, None])
    shrink = gl.exp2(highest - base)
    total = total * shrink + gl.sum(weights, 1)
    shrink = gl.convert_layout(shrink, gl.SliceLayout(1, OUT))
    following = gl.convert_layout(weights.to(dtype), LEFT)
    # Named here, so that the compiler does not put the exponentials off until the values have been multiplied.
    acc, p, p, total, shrink = hopper.warpgroup_mma_wait(0, deps=(product, p, following, total, shrink))
    return acc * shrink[:, None], p, total, higher, after, third


@jit
def forward(
    query: Any, k_desc: Any, v_desc: Any, mask: Any, columns: Any, means: Any, out: Any, lse: Any, queries: Any,
    keys: Any, key_tiles: Any, qb: Any, qh: Any, qt: Any, ob: Any, oh: Any, ot: Any,
    mb: Any, mq: Any, mk: Any,
    KEY_HEADS: gl.constexpr, GROUP: gl.constexpr, TOKENS: gl.constexpr, D: gl.constexpr, BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr, BOOLEAN: gl.constexpr, SCALE: gl.constexpr, num_warps: gl.constexpr,
) -> None:  # fmt: skip
    """As `prefix_attention_kernels.forward`."""
    dtype: gl.constexpr = query.dtype.element_ty
    SCORES: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [num_warps, 1], [16, BLOCK_N, 16])
    OUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [num_warps, 1], [16, D, 16])
    LEFT: gl.constexpr = gl.DotOperandLayout(operand_index=0, parent=OUT, k_width=2)
    ROWS: gl.constexpr = gl.BlockedLayout([1, 8], [256 // D, D // 8], [num_warps, 1], [1, 0])
    MEMORY: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BLOCK_N, D], dtype)
    FACTOR: gl.constexpr = SCALE * 1.4426950408889634
    i = gl.program_id(0)
    z = gl.program_id(1)
    b = z // KEY_HEADS
    g = z % KEY_HEADS
    columns += (b.to(gl.int64) * gl.num_programs(0) + i) * (key_tiles + 3)
    whole = gl.load(columns)
    looked_at = gl.load(columns + 1)
    columns += 2
    mask += b.to(gl.int64) * mb
    # A row tile that sees no key looks at the first ones, which the mask then hides.
    count = gl.maximum(looked_at, 1)
    first = gl.load(columns, mask=looked_at > 0, other=0)
    this = gl.load(columns + 1, mask=count > 1, other=0)
    after = gl.load(columns + 2, mask=count > 2, other=0)

    k_there = gl.allocate_shared_memory(gl.int64, [2, 1], hopper.mbarrier.MBarrierLayout())
    v_there = gl.allocate_shared_memory(gl.int64, [2, 1], hopper.mbarrier.MBarrierLayout())
    for slot in gl.static_range(2):
        hopper.mbarrier.init(k_there.index(slot), count=1)
        hopper.mbarrier.init(v_there.index(slot), count=1)
    k_memory = gl.allocate_shared_memory(dtype, [2, 1, 1, BLOCK_N, D], k_desc.layout)
    v_memory = gl.allocate_shared_memory(dtype, [2, 1, 1, BLOCK_N, D], v_desc.layout)
    _fetch(k_desc, b, g, first, k_there.index(0), k_memory.index(0), True, BLOCK_N, D)
    _fetch(k_desc, b, g, this, k_there.index(1), k_memory.index(1), count > 1, BLOCK_N, D)
    _fetch(v_desc, b, g, first, v_there.index(0), v_memory.index(0), True, BLOCK_N, D)

    r = gl.arange(0, BLOCK_M, layout=gl.SliceLayout(1, ROWS))
    d = gl.arange(0, D, layout=gl.SliceLayout(0, ROWS))
    token = i * TOKENS + r // GROUP
    head = (g * GROUP + r % GROUP).to(gl.int64)
    live = (r < TOKENS * GROUP) & (token < queries)
    row = (b.to(gl.int64) * qb + head * qh + token.to(gl.int64) * qt)[:, None] + d[None, :]
    q = gl.load(query + row, mask=live[:, None], other=0.0)
    q_memory = gl.allocate_shared_memory(dtype, [BLOCK_M, D], MEMORY, q)
    hopper.fence_async_shared()

    hopper.mbarrier.wait(k_there.index(0), 0)
    k = k_memory.index(0)._reinterpret(dtype, [BLOCK_N, D], MEMORY).permute([1, 0])
    zeros = gl.zeros([BLOCK_M, BLOCK_N], gl.float32, layout=SCORES)
    s = hopper.warpgroup_mma(q_memory, k, zeros, use_acc=False, is_async=True)
    s = hopper.warpgroup_mma_wait(0, deps=(s,)) * FACTOR
    if whole == 0:
        s = _masked(s, mask, i, first, queries, keys, mq, mk, GROUP, TOKENS, BLOCK_M, BLOCK_N, BOOLEAN, SCORES)
    highest = gl.max(s, 1)
    weights = gl.exp2(s - gl.where(highest == float("-inf"), 0.0, highest)[:, None])
    total = gl.sum(weights, 1)
    p = gl.convert_layout(weights.to(dtype), LEFT)
    acc = gl.zeros([BLOCK_M, D], gl.float32, layout=OUT)
    masked_from = gl.maximum(whole, 1)
    for t in range(1, masked_from):
        acc, p, total, highest, this, after = _step(
            t, acc, p, total, highest, this, after, count, columns, q_memory, k_memory, v_memory, k_there, v_there,
            k_desc, v_desc, b, g, mask, i, queries, keys, mq, mk, GROUP, TOKENS, D, BLOCK_M, BLOCK_N, BOOLEAN, False,
            FACTOR, SCORES, OUT, LEFT, MEMORY,
        )  # fmt: skip
    for t in range(masked_from, count):
        acc, p, total, highest, this, after = _step(
            t, acc, p, total, highest, this, after, count, columns, q_memory, k_memory, v_memory, k_there, v_there,
            k_desc, v_desc, b, g, mask, i, queries, keys, mq, mk, GROUP, TOKENS, D, BLOCK_M, BLOCK_N, BOOLEAN, True,
            FACTOR, SCORES, OUT, LEFT, MEMORY,
        )  # fmt: skip
    last = (count - 1) % 2
    hopper.mbarrier.wait(v_there.index(last), ((count - 1) // 2) & 1)
    v = v_memory.index(last)._reinterpret(dtype, [BLOCK_N, D], MEMORY)
    acc = hopper.warpgroup_mma(p, v, acc, is_async=True)
    acc, p = hopper.warpgroup_mma_wait(0, deps=(acc, p))
    for slot in gl.static_range(2):
        hopper.mbarrier.invalidate(k_there.index(slot))
        hopper.mbarrier.invalidate(v_there.index(slot))

    at_row = gl.arange(0, BLOCK_M, layout=gl.SliceLayout(1, SCORES))
    there = (at_row < TOKENS * GROUP) & (i * TOKENS + at_row // GROUP < queries)
    blind = there & (total == 0.0)
    sums = gl.where(there & (total != 0.0), highest + gl.log2(total), float("inf"))
    gl.store(lse + (z.to(gl.int64) * gl.num_programs(0) + i) * BLOCK_M + at_row, sums)
    acc = acc / gl.convert_layout(total, gl.SliceLayout(1, OUT))[:, None]
    blind_row = gl.convert_layout(blind.to(gl.int32), gl.SliceLayout(1, ROWS)) > 0
    to = out + (b.to(gl.int64) * ob + head * oh + token.to(gl.int64) * ot)[:, None] + d[None, :]
    result = gl.convert_layout(acc.to(dtype), ROWS)
    gl.store(to, result, mask=(live & (blind_row == 0))[:, None])
    mean = gl.load(means + z.to(gl.int64) * D + d).to(dtype)
    gl.store(to, mean[None, :] + gl.zeros([BLOCK_M, D], dtype, layout=ROWS), mask=(live & blind_row)[:, None])


def fits(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> bool:
    """Whether this kernel can take them."""
    if gluon is None or device_kind(query.device).name != "sm_90":
        return False
    if query.dtype not in (torch.bfloat16, torch.float16) or query.shape[3] not in (64, 128, 256):
        return False
    # What the accelerator asks of a tensor: 16-byte steps and starts.
    return all(
        tensor.data_ptr() % 16 == 0
        and tensor.stride(3) == 1
        and all(step > 0 and step % 8 == 0 for step in tensor.stride()[:3])
        for tensor in (key, value)
    )


def descriptor(tensor: torch.Tensor, block_keys: int) -> Any:
    """Describe keys or values [B, G, K, D] to the accelerator, in tiles of `block_keys`; beyond them it gives zero."""
    block = [1, 1, block_keys, tensor.shape[3]]
    layout = gl.NVMMASharedLayout.get_default_for(block, gl.bfloat16)
    return descriptors.TensorDescriptor(tensor, list(tensor.shape), list(tensor.stride()), block, layout)
