# SPDX-License-Identifier: Apache-2.0
"""activation(gate) * up and its backward in one pass each: what `geglu` and `swiglu` share.

The backward computes the activation again from the gate, so that nothing but the two inputs is kept. Arithmetic is in
float32 (float64 for float64) and rounded once, where the library rounds the activation first. With `exact`, for bf16,
the activation is looked up in a table that the library itself filled: 65,536 values, bitwise the library's, and then
rounded where the library rounds.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch.nn import functional

from .configurations import launch
from .language import accumulator, cdiv, jit, on, tl

ACTIVATIONS = ("gelu_tanh", "silu")


def activate(name: str, gate: torch.Tensor) -> torch.Tensor:
    """The library's activation."""
    return functional.gelu(gate, approximate="tanh") if name == "gelu_tanh" else functional.silu(gate)


@jit
def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x)); exact at both ends."""
    return 1.0 / (1.0 + tl.exp2(x * -1.4426950408889634))


@jit
def activation_and_slope(x: Any, GELU: tl.constexpr) -> Any:
    """activation(x) and its derivative; gelu is x * sigmoid(2 u), which keeps digits that 1 + tanh(u) loses."""
    if GELU:
        square = x * x
        s = sigmoid(x * (1.5957691216057308 + 0.07135481627260025 * square))
        steep = s - s * s
        # Where sigmoid is flat its slope is 0, however large the factor beside it.
        slope = s + tl.where(steep == 0.0, 0.0, x * steep * (1.5957691216057308 + 0.21406444881780076 * square))
    else:
        s = sigmoid(x)
        slope = s * (1.0 + x * (1.0 - s))
    return x * s, slope


@jit
def _forward(
    gate: Any,
    up: Any,
    out: Any,
    table: Any,
    columns: Any,
    gate_stride: Any,
    up_stride: Any,
    blocks: Any,
    GELU: tl.constexpr,
    EXACT: tl.constexpr,
    ACC: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    row = (tl.program_id(0) // blocks).to(tl.int64)
    column = (tl.program_id(0) % blocks).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = column < columns
    g = tl.load(gate + row * gate_stride + column, mask=inside, other=0.0)
    u = tl.load(up + row * up_stride + column, mask=inside, other=0.0).to(ACC)
    if EXACT:
        a = tl.load(table + g.to(tl.uint16, bitcast=True).to(tl.int32)).to(ACC)
    else:
        a, _ = activation_and_slope(g.to(ACC), GELU)
    tl.store(out + row * columns + column, (a * u).to(out.dtype.element_ty), mask=inside)


@jit
def _backward(
    grad: Any,
    gate: Any,
    up: Any,
    grad_gate: Any,
    grad_up: Any,
    table: Any,
    slopes: Any,
    columns: Any,
    grad_stride: Any,
    gate_stride: Any,
    up_stride: Any,
    blocks: Any,
    GELU: tl.constexpr,
    EXACT: tl.constexpr,
    ACC: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    row = (tl.program_id(0) // blocks).to(tl.int64)
    column = (tl.program_id(0) % blocks).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = column < columns
    d = tl.load(grad + row * grad_stride + column, mask=inside, other=0.0).to(ACC)
    g = tl.load(gate + row * gate_stride + column, mask=inside, other=0.0)
    u = tl.load(up + row * up_stride + column, mask=inside, other=0.0).to(ACC)
    if EXACT:
        bits = g.to(tl.uint16, bitcast=True).to(tl.int32)
        a = tl.load(table + bits).to(ACC)
        through = (d * u).to(grad_gate.dtype.element_ty).to(ACC) * tl.load(slopes + bits)
    else:
        a, slope = activation_and_slope(g.to(ACC), GELU)
        through = d * u * slope
    tl.store(grad_gate + row * columns + column, through.to(grad_gate.dtype.element_ty), mask=inside)
    tl.store(grad_up + row * columns + column, (d * a).to(grad_up.dtype.element_ty), mask=inside)


@cache
def tables(name: str, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """The library's activation of every bf16 number, by its bits: bf16 [65536], and its slope: float32 [65536]."""
    with torch.inference_mode(False), torch.enable_grad():
        every = torch.arange(65536, device=device, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
        x = every.float().requires_grad_()
        (slope,) = torch.autograd.grad(activate(name, x).sum(), x)
        return activate(name, every), slope


def as_matrix(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor as rows of neighbouring elements, [rows, width]; a copy only where its strides allow no view."""
    rows = tensor.reshape(-1, tensor.shape[-1])
    return rows if rows.stride(1) == 1 or rows.shape[1] == 1 else rows.contiguous()


def as_rows(*tensors: torch.Tensor) -> list[torch.Tensor]:
    """The tensors, of one shape, as matrices: one long row where all are contiguous."""
    if all(tensor.is_contiguous() for tensor in tensors):
        return [tensor.view(1, -1) for tensor in tensors]
    return [as_matrix(tensor) for tensor in tensors]


@torch.library.custom_op("turbo_hydra::gated", mutates_args=())
def gated(gate: torch.Tensor, up: torch.Tensor, activation: str, exact: bool) -> torch.Tensor:
    """Operator of the forward pass; tensors of one shape and dtype, result contiguous."""
    out = torch.empty(gate.shape, dtype=gate.dtype, device=gate.device)
    if out.numel() == 0:
        return out
    g, u = as_rows(gate, up)
    config = launch("gated", "forward_exact" if exact else "forward", activation, gate.device)
    blocks = cdiv(g.shape[1], config["BLOCK"])
    table = tables(activation, gate.device)[0] if exact else out
    with on(gate.device):
        _forward[(g.shape[0] * blocks,)](
            g, u, out, table, g.shape[1], g.stride(0), u.stride(0), blocks,
            GELU=activation == "gelu_tanh", EXACT=exact, ACC=accumulator(gate.dtype), **config,
        )  # fmt: skip
    return out


@gated.register_fake
def _(gate: torch.Tensor, up: torch.Tensor, activation: str, exact: bool) -> torch.Tensor:
    return torch.empty(gate.shape, dtype=gate.dtype, device=gate.device)


@torch.library.custom_op("turbo_hydra::gated_backward", mutates_args=())
def gated_backward(
    grad: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, activation: str, exact: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Operator of the backward pass: gradients of gate and up, contiguous."""
    grad_gate = torch.empty(gate.shape, dtype=gate.dtype, device=gate.device)
    grad_up = torch.empty_like(grad_gate)
    if grad_gate.numel() == 0:
        return grad_gate, grad_up
    d, g, u = as_rows(grad, gate, up)
    config = launch("gated", "backward_exact" if exact else "backward", activation, gate.device)
    blocks = cdiv(g.shape[1], config["BLOCK"])
    table, slopes = tables(activation, gate.device) if exact else (grad_up, grad_up)
    with on(gate.device):
        _backward[(g.shape[0] * blocks,)](
            d, g, u, grad_gate, grad_up, table, slopes, g.shape[1], d.stride(0), g.stride(0), u.stride(0), blocks,
            GELU=activation == "gelu_tanh", EXACT=exact, ACC=accumulator(gate.dtype), **config,
        )  # fmt: skip
    return grad_gate, grad_up


@gated_backward.register_fake
def _(
    grad: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, activation: str, exact: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    empty = torch.empty(gate.shape, dtype=gate.dtype, device=gate.device)
    return empty, torch.empty_like(empty)


def _save(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    gate, up, ctx.activation, ctx.exact = inputs
    ctx.save_for_backward(gate, up)


def _differentiate(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None, None]:
    gate, up = ctx.saved_tensors
    grad_gate, grad_up = gated_backward(grad, gate, up, ctx.activation, ctx.exact)
    return grad_gate, grad_up, None, None


gated.register_autograd(_differentiate, setup_context=_save)
