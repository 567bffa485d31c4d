# SPDX-License-Identifier: Apache-2.0
"""The kernel of `adamw`: each program takes a part of one tensor."""

from __future__ import annotations

from typing import Any

from .language import jit, jit_unspecialized, tl


@jit
def _scramble(x: Any) -> Any:
    """A 32-bit hash that every bit of x reaches (the finisher of MurmurHash3)."""
    x = x ^ (x >> 16)
    x = x * 0x85EBCA6B
    x = x ^ (x >> 13)
    x = x * 0xC2B2AE35
    return x ^ (x >> 16)


@jit
def _round_at_random(x: Any, noise: Any) -> Any:
    """float32 to bf16: 16 random bits are added to those that are cut off. Infinite stays so; NaN is not touched."""
    bits = x.to(tl.uint32, bitcast=True)
    rounded = ((bits + (noise & 0xFFFF)) & 0xFFFF0000).to(tl.float32, bitcast=True)
    return tl.where(x == x, rounded, x).to(tl.bfloat16)


@jit
def _update(
    p_at: Any,
    g_at: Any,
    m_at: Any,
    v_at: Any,
    inside: Any,
    noise: Any,
    factor: Any,
    decay: Any,
    rest1: Any,
    beta2: Any,
    rest2: Any,
    size: Any,
    root: Any,
    eps: Any,
    AT_RANDOM: tl.constexpr,
) -> None:
    p = tl.load(p_at, mask=inside).to(tl.float32) * decay
    g = tl.load(g_at, mask=inside).to(tl.float32) * factor
    m = tl.load(m_at, mask=inside).to(tl.float32)
    v = tl.load(v_at, mask=inside).to(tl.float32)
    m += rest1 * (g - m)
    v = beta2 * v + rest2 * g * g
    p -= size * m / (tl.sqrt(v) * root + eps)
    if AT_RANDOM:
        tl.store(p_at, _round_at_random(p, noise), mask=inside)
    else:
        tl.store(p_at, p.to(p_at.dtype.scalar.element_ty), mask=inside)
    tl.store(m_at, m.to(m_at.dtype.scalar.element_ty), mask=inside)
    tl.store(v_at, v.to(v_at.dtype.scalar.element_ty), mask=inside)


@jit_unspecialized("seed")
def step_all(
    addresses: Any,
    count: Any,
    tensors: Any,
    starts: Any,
    sizes: Any,
    factor_at: Any,
    seed: Any,
    sign: Any,
    decay: Any,
    rest1: Any,
    beta2: Any,
    rest2: Any,
    size: Any,
    root: Any,
    eps: Any,
    P: tl.constexpr,
    G: tl.constexpr,
    M: tl.constexpr,
    V: tl.constexpr,
    FACTOR: tl.constexpr,
    AT_RANDOM: tl.constexpr,
    ALIGNED: tl.constexpr,
    CHUNK: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """AdamW for one part of one tensor."""
    program = tl.program_id(0)
    number = tl.load(tensors + program)
    start = tl.multiple_of(tl.load(starts + program), 16)
    elements = tl.load(sizes + number)
    p = tl.load(addresses + number).to(tl.pointer_type(P))
    g = tl.load(addresses + count + number).to(tl.pointer_type(G))
    m = tl.load(addresses + 2 * count + number).to(tl.pointer_type(M))
    v = tl.load(addresses + 3 * count + number).to(tl.pointer_type(V))
    if ALIGNED:
        p = tl.multiple_of(p, 16)
        g = tl.multiple_of(g, 16)
        m = tl.multiple_of(m, 16)
        v = tl.multiple_of(v, 16)
    factor = sign
    if FACTOR:
        factor = sign * tl.load(factor_at)
    noise = tl.zeros([BLOCK], dtype=tl.uint32)
    # Whole parts are read without a mask, which would keep elements from being read 16 bytes at a time.
    whole = start + CHUNK <= elements
    for step in range(0, CHUNK, BLOCK):
        at = start + step + tl.arange(0, BLOCK)
        if AT_RANDOM:
            # Programs number the parts of all tensors, so that no two elements share a number below 2^32 parts.
            within = step + tl.arange(0, BLOCK)
            noise = _scramble(_scramble(program.to(tl.uint32) + seed.to(tl.uint32) * 0x9E3779B9) + within.to(tl.uint32))
        if whole:
            _update(
                p + at,
                g + at,
                m + at,
                v + at,
                None,
                noise,
                factor,
                decay,
                rest1,
                beta2,
                rest2,
                size,
                root,
                eps,
                AT_RANDOM,
            )
        else:
            _update(
                p + at, g + at, m + at, v + at, at < elements, noise, factor, decay, rest1, beta2, rest2, size, root,
                eps, AT_RANDOM,
            )  # fmt: skip
