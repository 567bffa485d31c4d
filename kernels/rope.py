# SPDX-License-Identifier: Apache-2.0
"""Rotary position embedding of the queries and keys of all heads in one pass.

    y[:half] = x[:half] * cos[:half] - x[half:] * sin[:half]
    y[half:] = x[half:] * cos[half:] + x[:half] * sin[half:]

in float32 (float64 for float64), rounded once. The backward is the transposed rotation by the same kernel; it needs
neither q nor k, so nothing but cos and sin is kept.
"""

from __future__ import annotations

from typing import Any

import torch

from . import language
from .configurations import launch
from .language import accumulator, cdiv, jit, on, power_of_two, tl

# A program holds a token's heads.
WIDEST = 32768


def rope_plain(
    q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The library's path; the reference where the tensors are float64."""
    c, s = cos.unsqueeze(1), sin.unsqueeze(1)
    rotated = []
    for x in (q, k):
        first, second = x.chunk(2, dim=-1)
        rotated.append((x * c + torch.cat((-second, first), dim=-1) * s).to(x.dtype))
    return rotated[0], rotated[1]


def unfit(q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> str | None:
    """Why the kernel does not take these tensors, None where it does."""
    if q.dim() != 4 or k.dim() != 4 or q.shape[0] != k.shape[0] or q.shape[2:] != k.shape[2:]:
        return "q and k are not [batch, heads, length, size] with one batch, length and size"
    if q.shape[3] % 2 or power_of_two(max(q.shape[1], k.shape[1], 1)) * max(q.shape[3], 1) > WIDEST:
        return "the heads' size is odd, or a token's heads do not fit into one program"
    if cos.shape != sin.shape or cos.dim() != 3 or cos.shape[1:] != q.shape[2:] or cos.shape[0] not in (1, q.shape[0]):
        return "cos and sin are not [batch or 1, length, size]"
    if cos.requires_grad or sin.requires_grad:
        return "cos or sin needs a gradient"
    if q.dtype != k.dtype or cos.dtype != sin.dtype:
        return "q and k, or cos and sin, differ in dtype"
    return language.unfit(q, k, cos, sin)


def rope(
    q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, in_place: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rotate queries and keys by their positions.

    Parameters
    ----------
    q, k : Tensor
        [batch, heads, length, size], [batch, key heads, length, size]; floating, size even; any strides.
    cos, sin : Tensor
        [batch or 1, length, size], any floating dtype: once a step, for all layers. They get no gradient.
    in_place : bool
        Write into q and k where that is safe: where no gradient is recorded and each element has its own place.

    Returns
    -------
    Tensor, Tensor
        Like q and k, of the same strides where these are dense. The library's path where `unfit` gives a reason.
    """
    if unfit(q, k, cos, sin) is not None:
        return rope_plain(q, k, cos, sin)
    if in_place and _may_overwrite(q) and _may_overwrite(k):
        _in_place(q, k, cos, sin)
        return q, k
    rotated: tuple[torch.Tensor, torch.Tensor] = _operator(q, k, cos, sin, False)
    return rotated


def _may_overwrite(x: torch.Tensor) -> bool:
    recorded = torch.is_grad_enabled() and x.requires_grad
    return not recorded and all(stride > 0 or size == 1 for size, stride in zip(x.shape, x.stride(), strict=True))


@jit
def _turn(
    x: Any,
    y: Any,
    entry: Any,
    token: Any,
    heads: Any,
    half: Any,
    c1: Any,
    c2: Any,
    s1: Any,
    s2: Any,
    x_entry: Any,
    x_head: Any,
    x_token: Any,
    x_element: Any,
    y_entry: Any,
    y_head: Any,
    y_token: Any,
    y_element: Any,
    BACKWARD: tl.constexpr,
    ACC: tl.constexpr,
    HEADS: tl.constexpr,
    HALF: tl.constexpr,
) -> None:
    head = tl.arange(0, HEADS)[:, None].to(tl.int64)
    column = tl.arange(0, HALF)[None, :]
    inside = (head < heads) & (column < half)
    source = x + entry * x_entry + token * x_token + head * x_head
    first = tl.load(source + column * x_element, mask=inside, other=0.0).to(ACC)
    second = tl.load(source + (column + half) * x_element, mask=inside, other=0.0).to(ACC)
    if BACKWARD:
        low = first * c1 + second * s2
        high = second * c2 - first * s1
    else:
        low = first * c1 - second * s1
        high = second * c2 + first * s2
    target = y + entry * y_entry + token * y_token + head * y_head
    tl.store(target + column * y_element, low.to(y.dtype.element_ty), mask=inside)
    tl.store(target + (column + half) * y_element, high.to(y.dtype.element_ty), mask=inside)


@jit
def _rotate(
    q: Any,
    k: Any,
    q_out: Any,
    k_out: Any,
    cos: Any,
    sin: Any,
    entries: Any,
    length: Any,
    half: Any,
    q_heads: Any,
    k_heads: Any,
    q0: Any,
    q1: Any,
    q2: Any,
    q3: Any,
    k0: Any,
    k1: Any,
    k2: Any,
    k3: Any,
    p0: Any,
    p1: Any,
    p2: Any,
    p3: Any,
    r0: Any,
    r1: Any,
    r2: Any,
    r3: Any,
    cos_entry: Any,
    BACKWARD: tl.constexpr,
    ACC: tl.constexpr,
    Q_HEADS: tl.constexpr,
    K_HEADS: tl.constexpr,
    HALF: tl.constexpr,
    TOKENS: tl.constexpr,
) -> None:
    for step in range(TOKENS):
        number = tl.program_id(0) * TOKENS + step
        if number < entries * length:
            entry = (number // length).to(tl.int64)
            token = (number % length).to(tl.int64)
            column = tl.arange(0, HALF)[None, :]
            at = entry * cos_entry + token * (2 * half) + column
            c1 = tl.load(cos + at, mask=column < half, other=0.0).to(ACC)
            c2 = tl.load(cos + at + half, mask=column < half, other=0.0).to(ACC)
            s1 = tl.load(sin + at, mask=column < half, other=0.0).to(ACC)
            s2 = tl.load(sin + at + half, mask=column < half, other=0.0).to(ACC)
            _turn(
                q, q_out, entry, token, q_heads, half, c1, c2, s1, s2, q0, q1, q2, q3, p0, p1, p2, p3,
                BACKWARD, ACC, Q_HEADS, HALF,
            )  # fmt: skip
            _turn(
                k, k_out, entry, token, k_heads, half, c1, c2, s1, s2, k0, k1, k2, k3, r0, r1, r2, r3,
                BACKWARD, ACC, K_HEADS, HALF,
            )  # fmt: skip


def _run(
    q: torch.Tensor,
    k: torch.Tensor,
    q_out: torch.Tensor,
    k_out: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    backward: bool,
) -> None:
    entries, heads, length, size = q.shape
    if entries * length * size == 0 or heads + k.shape[1] == 0:
        return
    cos, sin = cos.contiguous(), sin.contiguous()
    config = launch("rope", "rotate", "default", q.device)
    with on(q.device):
        _rotate[(cdiv(entries * length, config["TOKENS"]),)](
            q, k, q_out, k_out, cos, sin, entries, length, size // 2, heads, k.shape[1], *q.stride(), *k.stride(),
            *q_out.stride(), *k_out.stride(), 0 if cos.shape[0] == 1 else cos.stride(0), BACKWARD=backward,
            ACC=accumulator(q.dtype), Q_HEADS=power_of_two(max(heads, 1)), K_HEADS=power_of_two(max(k.shape[1], 1)),
            HALF=power_of_two(size // 2), **config,
        )  # fmt: skip


@torch.library.custom_op("turbo_hydra::rope", mutates_args=())
def _operator(
    q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, backward: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    q_out, k_out = torch.empty_like(q), torch.empty_like(k)
    _run(q, k, q_out, k_out, cos, sin, backward)
    return q_out, k_out


@_operator.register_fake
def _(
    q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, backward: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.empty_like(q), torch.empty_like(k)


@torch.library.custom_op("turbo_hydra::rope_in_place", mutates_args=("q", "k"))
def _in_place(q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> None:
    _run(q, k, q, k, cos, sin, False)


@_in_place.register_fake
def _(q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> None:
    return None


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, torch.Tensor]) -> None:
    _, _, cos, sin, ctx.backward = inputs
    ctx.save_for_backward(cos, sin)


def _differentiate(ctx: Any, grad_q: torch.Tensor, grad_k: torch.Tensor) -> tuple[Any, ...]:
    cos, sin = ctx.saved_tensors
    q, k = _operator(grad_q, grad_k, cos, sin, not ctx.backward)
    return q, k, None, None, None


_operator.register_autograd(_differentiate, setup_context=_save)
