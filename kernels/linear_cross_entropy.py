# SPDX-License-Identifier: Apache-2.0
"""Cross entropy of a linear layer's outputs for large vocabularies, without keeping the logits.

The rows are taken in parts. A part's logits become its loss and, in the same memory, their own gradient, from which
both gradients are multiplied at once in the forward pass: as many products as the plain path has, and no logits kept.
"""

from __future__ import annotations

from math import prod
from typing import Any

import torch
from torch.nn import functional
from torch.utils.flop_counter import register_flop_formula

from . import language
from .configurations import launch, width_class
from .language import INTERPRETED, accumulates, accumulator, cdiv, jit, on, tl

# Bytes of logits that are there at a time. The weight's gradient is summed over parts, so few large ones are better.
PART = 1 << 30


def linear_cross_entropy_plain(
    hidden: torch.Tensor,
    weight: torch.Tensor,
    target: torch.Tensor,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
) -> torch.Tensor:
    """The library's path, with the softmax in float32; the reference where the tensors are float64."""
    logits = functional.linear(hidden, weight).flatten(0, -2)
    return functional.cross_entropy(
        logits.to(accumulates(logits.dtype)), target.flatten(), ignore_index=ignore_index,
        label_smoothing=label_smoothing, reduction=reduction,
    )  # fmt: skip


@jit
def _loss(
    logits: Any, target: Any, losses: Any, share: Any, columns: Any, stride: Any, ignored: Any,
    SMOOTHING: tl.constexpr, EACH: tl.constexpr, GRADIENT: tl.constexpr, ACC: tl.constexpr, BLOCK: tl.constexpr,
) -> None:  # fmt: skip
    """A row's loss; the gradient of `share` times the loss is written over the logits."""
    row = tl.program_id(0).to(tl.int64)
    logits += row * stride
    wanted = tl.load(target + row)
    column = tl.arange(0, BLOCK)
    if wanted == ignored:
        tl.store(losses + row, tl.zeros((), ACC))
        if GRADIENT:
            for start in range(0, columns, BLOCK):
                zeros = tl.zeros((BLOCK,), logits.dtype.element_ty)
                tl.store(logits + start + column, zeros, mask=start + column < columns)
    else:
        highest = tl.full((), float("-inf"), ACC)
        total = tl.zeros((), ACC)
        everything = tl.zeros((), ACC)
        for start in range(0, columns, BLOCK):
            inside = start + column < columns
            x = tl.load(logits + start + column, mask=inside, other=float("-inf")).to(ACC)
            higher = tl.maximum(highest, tl.max(x, 0))
            base = tl.where(higher == float("-inf"), 0.0, higher)
            total = total * tl.exp(highest - base) + tl.sum(tl.exp(x - base), 0)
            highest = higher
            if SMOOTHING > 0.0:
                everything += tl.sum(tl.where(inside, x, 0.0), 0)
        # Of large logits the differences are kept exact: their logarithm of a sum would be rounded.
        spread = tl.log(total)
        # A target outside the vocabulary gives NaN, not somebody else's memory.
        known = (wanted >= 0) & (wanted < columns)
        hit = tl.load(logits + wanted, mask=known, other=float("nan")).to(ACC)
        loss = spread + (highest - hit)
        if SMOOTHING > 0.0:
            loss = (1.0 - SMOOTHING) * loss + SMOOTHING * (spread + (highest - everything / columns))
        tl.store(losses + row, loss)
        if GRADIENT:
            # No warp may write over the target's logit before another has read it.
            tl.debug_barrier()
            factor = tl.load(share) + tl.where(known, 0.0, float("nan"))
            for start in range(0, columns, BLOCK):
                inside = start + column < columns
                x = tl.load(logits + start + column, mask=inside, other=0.0).to(ACC)
                p = tl.exp(x - highest) / total
                if SMOOTHING > 0.0:
                    p -= EACH
                p = tl.where(start + column == wanted, p - (1.0 - SMOOTHING), p)
                tl.store(logits + start + column, (p * factor).to(logits.dtype.element_ty), mask=inside)


def unfit(
    hidden: torch.Tensor,
    weight: torch.Tensor,
    target: torch.Tensor,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
) -> str | None:
    """Why the kernel does not take these tensors, None where it does."""
    if (
        hidden.dim() < 2
        or weight.dim() != 2
        or hidden.shape[:-1] != target.shape
        or hidden.shape[-1] != weight.shape[1]
    ):
        return "hidden, weight and target are not [..., K], [V, K] and [...]"
    if hidden.dtype != weight.dtype or (hidden.dtype == torch.float64 and not INTERPRETED):
        return "hidden and weight differ in dtype or are float64"
    if target.dtype != torch.int64 or target.device != hidden.device:
        return "the target is not int64 on the same device"
    if hidden.numel() == 0 or weight.numel() == 0:
        return "nothing to classify"
    if reduction not in ("mean", "sum") or not 0.0 <= label_smoothing <= 1.0:
        return "losses are not reduced"
    return language.unfit(hidden, weight)


def linear_cross_entropy(
    hidden: torch.Tensor,
    weight: torch.Tensor,
    target: torch.Tensor,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
) -> torch.Tensor:
    """cross_entropy(linear(hidden, weight), target); the gradients are made in the forward pass, and can be used once.

    Parameters
    ----------
    hidden : Tensor
        [..., K].
    weight : Tensor
        [V, K], of the same dtype.
    target : Tensor
        int64 [...], 0 to V - 1 or `ignore_index`; another number makes the loss NaN.
    ignore_index, label_smoothing, reduction
        As `torch.nn.functional.cross_entropy` takes them, without `reduction="none"`.

    Returns
    -------
    Tensor
        [], float32 (float64 for float64). The library's path where `unfit` gives a reason.
    """
    if unfit(hidden, weight, target, label_smoothing, reduction) is not None:
        return linear_cross_entropy_plain(hidden, weight, target, ignore_index, label_smoothing, reduction)
    grads = torch.is_grad_enabled()
    loss, _, _ = classify(
        hidden, weight, target, ignore_index, label_smoothing, reduction == "mean",
        grads and hidden.requires_grad, grads and weight.requires_grad,
    )  # fmt: skip
    result: torch.Tensor = loss
    return result


def _add_product(total: torch.Tensor, left: torch.Tensor, right: torch.Tensor) -> None:
    """Total += left @ right; where the total is more precise, inside the product if the library can."""
    if total.dtype == left.dtype:
        total.addmm_(left, right)
    elif total.is_cuda and hasattr(torch.ops.aten.addmm, "dtype_out"):
        torch.ops.aten.addmm.dtype_out(total, left, right, total.dtype, out=total)
    else:
        total += left @ right


@torch.library.custom_op("turbo_hydra::linear_cross_entropy", mutates_args=())
def classify(
    hidden: torch.Tensor, weight: torch.Tensor, target: torch.Tensor, ignore_index: int, label_smoothing: float,
    mean: bool, for_hidden: bool, for_weight: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    """Operator: the loss, and where they are asked for its gradients by hidden and by weight (else empty tensors)."""
    x, y = hidden.reshape(-1, hidden.shape[-1]), target.reshape(-1)
    rows, columns = x.shape[0], weight.shape[0]
    accumulated = accumulates(hidden.dtype)
    losses = x.new_empty(rows, dtype=accumulated)
    share = x.new_ones((), dtype=accumulated)
    if mean:
        share = share / (y != ignore_index).sum()
    parts = cdiv(rows * columns * x.element_size(), PART)
    part = min(rows, cdiv(cdiv(rows, parts), 128) * 128)
    grad_hidden = torch.empty_like(x) if for_hidden else x.new_empty(0)
    summed = accumulated if part < rows else weight.dtype
    grad_weight = torch.zeros(weight.shape, dtype=summed, device=x.device) if for_weight else weight.new_empty(0)
    config = launch("linear_cross_entropy", "loss", width_class(columns), x.device)
    for start in range(0, rows, part):
        some = slice(start, start + part)
        logits = functional.linear(x[some], weight)
        with on(x.device):
            _loss[(logits.shape[0],)](
                logits, y[some], losses[some], share, columns, logits.stride(0), ignore_index,
                SMOOTHING=label_smoothing, EACH=label_smoothing / columns, GRADIENT=for_hidden or for_weight,
                ACC=accumulator(x.dtype), **config,
            )  # fmt: skip
        if for_hidden:
            torch.mm(logits, weight, out=grad_hidden[some])
        if for_weight:
            _add_product(grad_weight, logits.T, x[some])
        del logits
    return losses.sum() * share, grad_hidden.view(hidden.shape if for_hidden else 0), grad_weight.to(weight.dtype)


@classify.register_fake
def _(
    hidden: torch.Tensor, weight: torch.Tensor, target: torch.Tensor, ignore_index: int, label_smoothing: float,
    mean: bool, for_hidden: bool, for_weight: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    return (
        hidden.new_empty((), dtype=accumulates(hidden.dtype)),
        hidden.new_empty(hidden.shape if for_hidden else 0),
        weight.new_empty(weight.shape if for_weight else 0),
    )


@register_flop_formula(torch.ops.turbo_hydra.linear_cross_entropy)
def _(
    hidden: torch.Size, weight: torch.Size, target: torch.Size, ignore_index: int, label_smoothing: float,
    mean: bool, for_hidden: bool, for_weight: bool, **_: Any,
) -> int:  # fmt: skip
    return 2 * prod(hidden) * weight[0] * (1 + for_hidden + for_weight)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
    *_, ctx.for_hidden, ctx.for_weight = inputs
    ctx.save_for_backward(*output[1:])
    ctx.set_materialize_grads(False)


def _differentiate(ctx: Any, grad: torch.Tensor | None, *_: Any) -> tuple[torch.Tensor | None, ...]:
    if grad is None:
        return (None,) * 8
    wanted = zip(ctx.saved_tensors, (ctx.for_hidden, ctx.for_weight), strict=True)
    return (*(saved * grad.to(saved.dtype) if asked else None for saved, asked in wanted), *(None,) * 6)


classify.register_autograd(_differentiate, setup_context=_save)
