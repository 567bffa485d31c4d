# SPDX-License-Identifier: Apache-2.0
"""The focal loss of sigmoids in PyTorch, as mmcv's operator computes it, with its gradient by formula."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from turbo_hydra import fallback, redecorated
from turbo_hydra.catalogs.mmcv.deform_conv import extension_is_there

Function = Callable[..., Any]


def forward(original: Function, options: None) -> Function:
    """Factory for `SigmoidFocalLossFunction.forward`."""

    def make(inner: Function) -> Function:
        def forward(
            ctx: Any,
            input: Tensor,
            target: Tensor,
            gamma: float = 2.0,
            alpha: float = 0.25,
            weight: Tensor | None = None,
            reduction: str = "mean",
        ) -> Tensor:
            reason = _unfit(input, target, weight, reduction)
            ctx.in_pytorch = reason is None
            if reason is not None:
                fallback(reason)
                result: Tensor = inner(ctx, input, target, gamma, alpha, weight, reduction)
                return result
            ctx.save_for_backward(input, target)
            ctx.settings = (gamma, alpha)
            ctx.rows = input.shape[0] if reduction == "mean" else 1
            losses = focal_losses(input, target, gamma, alpha)
            return losses if reduction == "none" else losses.sum() / ctx.rows

        return forward

    return redecorated(original, make)


def backward(original: Function, options: None) -> Function:
    """Factory for `SigmoidFocalLossFunction.backward`."""

    def make(inner: Function) -> Function:
        def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
            if not getattr(ctx, "in_pytorch", False):
                fallback("the forward took the extension")
                result: tuple[Tensor | None, ...] = inner(ctx, grad_output)
                return result
            slopes = focal_slopes(*ctx.saved_tensors, *ctx.settings)
            return (slopes * (grad_output / ctx.rows), *[None] * 5)

        return backward

    return redecorated(original, make)


def focal_losses(scores: Tensor, target: Tensor, gamma: float, alpha: float) -> Tensor:
    """Loss of each class of each row.

    Parameters
    ----------
    scores : Tensor
        [N, C], before the sigmoid.
    target : Tensor
        int64 [N], 0 to C - 1; any other number is the background, which is no class.
    gamma, alpha : float
        As in Lin et al., Focal Loss for Dense Object Detection (2017).

    Returns
    -------
    Tensor
        [N, C].
    """
    p = scores.sigmoid()
    hit = -alpha * (1 - p) ** gamma * functional.logsigmoid(scores)
    miss = -(1 - alpha) * p**gamma * functional.logsigmoid(-scores)
    return torch.where(_is_target(scores, target), hit, miss)


def focal_slopes(scores: Tensor, target: Tensor, gamma: float, alpha: float) -> Tensor:
    """Derivative of each of `focal_losses` by its score, [N, C]."""
    p = scores.sigmoid()
    hit = alpha * (1 - p) ** gamma * (gamma * p * functional.logsigmoid(scores) + p - 1)
    miss = (1 - alpha) * p**gamma * (p - gamma * (1 - p) * functional.logsigmoid(-scores))
    return torch.where(_is_target(scores, target), hit, miss)


def _is_target(scores: Tensor, target: Tensor) -> Tensor:
    return target.unsqueeze(1) == torch.arange(scores.shape[1], device=target.device)


def _unfit(input: Tensor, target: Tensor, weight: Tensor | None, reduction: str) -> str | None:
    """Why the extension's operator is called, None where it is not."""
    if extension_is_there():
        return "the extension is there"
    if weight is not None:
        return "classes have weights"
    shapes_fit = input.dim() == 2 and target.dim() == 1 and input.shape[0] == target.shape[0]
    if not shapes_fit or target.dtype != torch.int64 or reduction not in ("none", "mean", "sum"):
        return "arguments that mmcv refuses"
    return None
