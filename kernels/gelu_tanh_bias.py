# SPDX-License-Identifier: Apache-2.0
"""gelu(x + bias) in its tanh form, one pass; the bias's gradient comes out of the same backward pass.

A linear layer that leaves its bias to this kernel saves a rounding and, in the backward, a pass over the gradient. Each
program of the backward sums its rows' gradients in float32; the sums of all programs are added in a fixed order.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from . import language
from .configurations import launch
from .device import processors
from .gated import activation_and_slope, as_matrix
from .language import accumulates, accumulator, cdiv, jit, on, tl
from .partial_sums import add_up


def gelu_tanh_bias_plain(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """The library's path; the reference where the tensors are float64."""
    return functional.gelu(x + bias, approximate="tanh")


def unfit(x: torch.Tensor, bias: torch.Tensor) -> str | None:
    """Why the kernel does not take these tensors, None where it does."""
    if bias.dim() != 1 or x.dim() == 0 or x.shape[-1] != bias.shape[0]:
        return "bias is not a vector as long as a row of x"
    if x.dtype != bias.dtype:
        return "x and bias differ in dtype"
    return language.unfit(x, bias)


def gelu_tanh_bias(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """gelu(x + bias, approximate="tanh").

    Parameters
    ----------
    x : Tensor
        [..., width], floating; a product without its bias. Kept for the backward.
    bias : Tensor
        [width], of the same dtype.

    Returns
    -------
    Tensor
        [..., width], contiguous, of the same dtype. The library's path where `unfit` gives a reason.
    """
    if unfit(x, bias) is not None:
        return gelu_tanh_bias_plain(x, bias)
    out: torch.Tensor = _operator(x, bias)
    return out


@jit
def _forward(
    x: Any,
    bias: Any,
    out: Any,
    rows: Any,
    width: Any,
    stride: Any,
    blocks: Any,
    ACC: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    row = (tl.program_id(0) // blocks).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = (tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK)
    inside = (row[:, None] < rows) & (column[None, :] < width)
    b = tl.load(bias + column, mask=column < width, other=0.0).to(ACC)
    a = tl.load(x + row[:, None] * stride + column[None, :], mask=inside, other=0.0).to(ACC) + b[None, :]
    y, _ = activation_and_slope(a, True)
    tl.store(out + row[:, None] * width + column[None, :], y.to(out.dtype.element_ty), mask=inside)


@jit
def _backward(
    grad: Any,
    x: Any,
    bias: Any,
    grad_x: Any,
    sums: Any,
    rows: Any,
    width: Any,
    grad_stride: Any,
    stride: Any,
    blocks: Any,
    steps: Any,
    ACC: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
) -> None:
    part = tl.program_id(0) // blocks
    column = (tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK)
    b = tl.load(bias + column, mask=column < width, other=0.0).to(ACC)
    total = tl.zeros([ROWS, BLOCK], dtype=ACC)
    for step in tl.range(0, steps, num_stages=STAGES):
        row = (part.to(tl.int64) * steps + step) * ROWS + tl.arange(0, ROWS)
        inside = (row[:, None] < rows) & (column[None, :] < width)
        a = tl.load(x + row[:, None] * stride + column[None, :], mask=inside, other=0.0).to(ACC) + b[None, :]
        d = tl.load(grad + row[:, None] * grad_stride + column[None, :], mask=inside, other=0.0).to(ACC)
        _, slope = activation_and_slope(a, True)
        through = d * slope
        total += through
        tl.store(grad_x + row[:, None] * width + column[None, :], through.to(grad_x.dtype.element_ty), mask=inside)
    tl.store(sums + part.to(tl.int64) * width + column, tl.sum(total, axis=0), mask=column < width)


@torch.library.custom_op("turbo_hydra::gelu_tanh_bias", mutates_args=())
def _operator(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if out.numel() == 0:
        return out
    matrix = as_matrix(x)
    rows, width = matrix.shape
    config = launch("gelu_tanh_bias", "forward", "default", x.device)
    blocks = cdiv(width, config["BLOCK"])
    with on(x.device):
        _forward[(cdiv(rows, config["ROWS"]) * blocks,)](
            matrix, bias.contiguous(), out, rows, width, matrix.stride(0), blocks, ACC=accumulator(x.dtype), **config
        )
    return out


@_operator.register_fake
def _(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


@torch.library.custom_op("turbo_hydra::gelu_tanh_bias_backward", mutates_args=())
def _operator_backward(grad: torch.Tensor, x: torch.Tensor, bias: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    grad_x = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if grad_x.numel() == 0:
        return grad_x, torch.zeros_like(bias)
    matrix, grads = as_matrix(x), as_matrix(grad)
    rows, width = matrix.shape
    config = launch("gelu_tanh_bias", "backward", "default", x.device)
    programs = config.pop("PROGRAMS")  # per multiprocessor
    blocks = cdiv(width, config["BLOCK"])
    tiles = cdiv(rows, config["ROWS"])
    steps = cdiv(tiles, max(1, programs * processors(x.device) // blocks))
    parts = cdiv(tiles, steps)
    sums = torch.empty(parts, width, dtype=accumulates(x.dtype), device=x.device)
    with on(x.device):
        _backward[(parts * blocks,)](
            grads, matrix, bias.contiguous(), grad_x, sums, rows, width, grads.stride(0), matrix.stride(0), blocks,
            steps, ACC=accumulator(x.dtype), **config,
        )  # fmt: skip
    return grad_x, add_up(sums[None], bias.dtype)[0]


@_operator_backward.register_fake
def _(grad: torch.Tensor, x: torch.Tensor, bias: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.empty(x.shape, dtype=x.dtype, device=x.device), torch.empty(
        bias.shape, dtype=bias.dtype, device=x.device
    )


def _save(ctx: Any, inputs: tuple[torch.Tensor, torch.Tensor], output: torch.Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _differentiate(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    result: tuple[torch.Tensor, torch.Tensor] = _operator_backward(grad, *ctx.saved_tensors)
    return result


_operator.register_autograd(_differentiate, setup_context=_save)
