# SPDX-License-Identifier: Apache-2.0
"""softmax(scores * scale + mask) over the last dimension and its backward, accumulated in float32, any length.

A row that fits into one block is read once. A longer one is read twice: once for its maximum and its sum, kept up to
date while the blocks go by (online), once to write. The backward needs the result only, as the library's does; where
the library keeps float32 results of bf16 scores, here the rounded result serves, which is half the memory.
"""

from __future__ import annotations

from math import gcd
from typing import Any

import torch

from . import language
from .configurations import launch, width_class
from .language import accumulates, accumulator, cdiv, on, power_of_two
from .softmax_kernels import backward, forward

MaybeTensor = torch.Tensor | None


def softmax_plain(scores: torch.Tensor, mask: MaybeTensor = None, scale: float = 1.0) -> torch.Tensor:
    """The library's path; the reference where the tensors are float64."""
    dtype = scores.dtype
    scores = scores * scale if scale != 1.0 else scores
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf")) if mask.dtype == torch.bool else scores + mask
    return torch.softmax(scores, dim=-1, dtype=accumulates(dtype)).to(dtype)


def unfit(scores: torch.Tensor, mask: MaybeTensor = None) -> str | None:
    """Why the kernel does not take these tensors, None where it does."""
    if scores.dim() == 0:
        return "scores have no dimension"
    if mask is None:
        return language.unfit(scores)
    if scores.dim() > 4 or not _broadcasts(mask, scores):
        return "the mask is not broadcast to scores of at most 4 dimensions"
    if mask.requires_grad:
        return "the mask needs a gradient"
    if mask.dtype == torch.bool:
        return language.unfit(scores) or (None if mask.device == scores.device else "tensors on different devices")
    return language.unfit(scores, mask)


def _broadcasts(mask: torch.Tensor, scores: torch.Tensor) -> bool:
    if mask.dim() > scores.dim():
        return False
    ends = scores.shape[scores.dim() - mask.dim() :]
    return all(own in (1, whole) for own, whole in zip(mask.shape, ends, strict=True))


def softmax(scores: torch.Tensor, mask: MaybeTensor = None, scale: float = 1.0) -> torch.Tensor:
    """softmax(scores * scale + mask) over the last dimension.

    Parameters
    ----------
    scores : Tensor
        [..., keys], floating; of at most 4 dimensions where there is a mask. Contiguous ones are not copied.
    mask : Tensor, optional
        Broadcast to scores. Floating: added. Boolean: where False, the key gets no weight. It gets no gradient. A row
        without any key is NaN, as the library's is.
    scale : float
        Factor of the scores, such as one over the root of the head size.

    Returns
    -------
    Tensor
        [..., keys], contiguous, of the scores' dtype; computed in float32 (float64 for float64). The library's path
        where `unfit` gives a reason.
    """
    if unfit(scores, mask) is not None:
        return softmax_plain(scores, mask, scale)
    out: torch.Tensor = _operator(scores, mask, scale)
    return out


# The widest row that is held at once; a class of its own in the table, so that it can be tuned.
_ONE = 16384


def _shape(width: int, kernel: str, device: torch.device) -> dict[str, Any]:
    """Launch of a row's width: one block where the row fits; odd widths are those whose rows move in small pieces."""
    one = width <= _ONE
    shape_class = width_class(width) if width % 8 == 0 else f"{width_class(width)}_odd"
    config: dict[str, Any] = launch("softmax", kernel, shape_class if one else "long", device)
    config["ONE"] = one
    if one:
        config["BLOCK"] = power_of_two(width)
    return config


def _mask_strides(mask: torch.Tensor, shape: torch.Size) -> tuple[torch.Tensor, tuple[int, ...]]:
    """The mask with neighbouring or one element a row, and its strides over [batch, heads, queries, keys]."""
    if mask.shape[-1] > 1 and mask.stride(-1) != 1:
        mask = mask.contiguous()
    strides = mask.expand(shape).stride()
    return mask, (*(0,) * (4 - len(strides)), *strides)


@torch.library.custom_op("turbo_hydra::softmax", mutates_args=())
def _operator(scores: torch.Tensor, mask: MaybeTensor, scale: float) -> torch.Tensor:
    out = torch.empty(scores.shape, dtype=scores.dtype, device=scores.device)
    if out.numel() == 0:
        return out
    matrix = scores.contiguous()
    width = scores.shape[-1]
    rows = out.numel() // width
    heads = scores.shape[-3] if scores.dim() > 2 else 1
    queries = scores.shape[-2] if scores.dim() > 1 else 1
    kind = 0
    strides: tuple[int, ...] = (0, 0, 0, 0)
    if mask is not None:
        kind = 2 if mask.dtype == torch.bool else 1
        mask = mask.view(torch.uint8) if kind == 2 else mask
        mask, strides = _mask_strides(mask, scores.shape)
    m_align = gcd(16, *strides[:3])
    config = _shape(width, "forward", scores.device)
    align = gcd(16, width)
    with on(scores.device):
        forward[(cdiv(rows, config["ROWS"]),)](
            matrix, matrix if mask is None else mask, out, scale, rows, width // align, heads, queries,
            *(stride // m_align for stride in strides[:3]), M_COLUMN=strides[3], MASK=kind, ALIGN=align,
            M_ALIGN=m_align, ACC=accumulator(scores.dtype), **config,
        )  # fmt: skip
    return out


@_operator.register_fake
def _(scores: torch.Tensor, mask: MaybeTensor, scale: float) -> torch.Tensor:
    return torch.empty(scores.shape, dtype=scores.dtype, device=scores.device)


@torch.library.custom_op("turbo_hydra::softmax_backward", mutates_args=())
def _operator_backward(grad: torch.Tensor, out: torch.Tensor, scale: float) -> torch.Tensor:
    grad_scores = torch.empty(out.shape, dtype=out.dtype, device=out.device)
    if out.numel() == 0:
        return grad_scores
    width = out.shape[-1]
    rows = out.numel() // width
    config = _shape(width, "backward", out.device)
    align = gcd(16, width)
    with on(out.device):
        backward[(cdiv(rows, config["ROWS"]),)](
            grad.contiguous(), out.contiguous(), grad_scores, scale, rows, width // align, ALIGN=align,
            ACC=accumulator(out.dtype), **config,
        )  # fmt: skip
    return grad_scores


@_operator_backward.register_fake
def _(grad: torch.Tensor, out: torch.Tensor, scale: float) -> torch.Tensor:
    return torch.empty(out.shape, dtype=out.dtype, device=out.device)


def _save(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    _, _, ctx.scale = inputs
    ctx.save_for_backward(output)


def _differentiate(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None]:
    (out,) = ctx.saved_tensors
    return _operator_backward(grad, out, ctx.scale), None, None


_operator.register_autograd(_differentiate, setup_context=_save)
