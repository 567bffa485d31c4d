# SPDX-License-Identifier: Apache-2.0
"""Gated residual, RMS norm, scale, shift and casts in one pass.

    h = residual + x * gate                 rounded to x's dtype, as it is stored
    y = h * rsqrt(mean(h^2) + eps) * (offset + scale) + shift

Statistics are in float32 (float64 for float64). The backward is one pass too; what it sums over rows (the gradients of
scale, shift and gate) each program adds up for its rows, and the programs' sums are added in a fixed order.
"""

from __future__ import annotations

from typing import Any

import torch

from . import language
from .ada_rms_norm_kernels import backward, forward
from .configurations import launch, width_class
from .device import processors
from .gated import as_matrix
from .language import accumulates, accumulator, cdiv, on, power_of_two
from .partial_sums import add_up

# A program holds a whole row.
WIDEST = 16384
MaybeTensor = torch.Tensor | None


def _beside(modulation: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """[batch, width] as [batch, 1, ..., width], so that it is broadcast over the rows of its batch entry."""
    if modulation.dim() == 2 and x.dim() > 2:
        return modulation.view(modulation.shape[0], *(1,) * (x.dim() - 2), modulation.shape[1])
    return modulation


def ada_rms_norm_plain(
    x: torch.Tensor,
    scale: torch.Tensor,
    shift: MaybeTensor,
    eps: float,
    residual: MaybeTensor = None,
    gate: MaybeTensor = None,
    offset: float = 1.0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The library's path, statement by statement as models write it; the reference where the tensors are float64."""
    h = x if gate is None else x * _beside(gate, x)
    h = (h if residual is None else residual + h).to(x.dtype)
    wide = h.to(accumulates(x.dtype))
    y = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * (offset + _beside(scale, x).to(wide.dtype))
    if shift is not None:
        y = y + _beside(shift, x).to(wide.dtype)
    return y.to(x.dtype), h


def unfit(
    x: torch.Tensor,
    scale: torch.Tensor,
    shift: MaybeTensor = None,
    residual: MaybeTensor = None,
    gate: MaybeTensor = None,
) -> str | None:
    """Why the kernel does not take these tensors, None where it does."""
    if x.dim() == 0 or not 1 <= x.shape[-1] <= WIDEST:
        return "a row of x does not fit into one program"
    if gate is not None and residual is None:
        return "a gate without a residual"
    if residual is not None and (residual.shape != x.shape or residual.dtype != x.dtype):
        return "x and residual differ in shape or dtype"
    for item in (scale, shift, gate):
        if item is not None and not _fits(item, x):
            return "scale, shift or gate is neither [width] nor [batch, width]"
    return language.unfit(x, *(item for item in (scale, shift, residual, gate) if item is not None))


def _fits(item: torch.Tensor, x: torch.Tensor) -> bool:
    if item.dim() == 1:
        return item.shape[0] == x.shape[-1]
    if item.dim() == x.dim() and x.dim() > 2:
        between = item.shape[1:-1].numel() == 1
    else:
        between = item.dim() == 2 and x.dim() > 1
    return between and item.shape[0] == x.shape[0] and item.shape[-1] == x.shape[-1]


def ada_rms_norm(
    x: torch.Tensor,
    scale: torch.Tensor,
    shift: MaybeTensor,
    eps: float,
    residual: MaybeTensor = None,
    gate: MaybeTensor = None,
    offset: float = 1.0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Add to the residual, normalise, scale and shift.

    Parameters
    ----------
    x : Tensor
        [batch, ..., width], floating, width at most 16,384: what is added to the residual, or what is normalised.
    scale, shift, gate : Tensor
        [width] for all, or [batch, width] or [batch, 1, ..., width] for each batch entry; any floating dtype, also
        parts of one tensor (`chunk`). `shift` and `gate` may be None.
    eps : float
        Added to the mean square.
    residual : Tensor, optional
        Like x.
    offset : float
        1 for Gemma, whose scales are learned around 0; 0 for others.

    Returns
    -------
    y, h : Tensor
        Like x, contiguous: the normalised, and the sum before normalisation (x itself without a residual). The
        library's path where `unfit` gives a reason.
    """
    if unfit(x, scale, shift, residual, gate) is not None:
        return ada_rms_norm_plain(x, scale, shift, eps, residual, gate, offset)
    y, h, _ = _operator(x, scale, shift, residual, gate, eps, offset)
    return y, (x if residual is None else h)


def _entries(x: torch.Tensor, *modulations: MaybeTensor) -> int:
    """How many parts x has along its first dimension that are modulated differently."""
    return x.shape[0] if any(item is not None and item.dim() > 1 for item in modulations) else 1


def _strided(modulation: MaybeTensor, width: int, stand_in: torch.Tensor) -> tuple[torch.Tensor, int]:
    """A modulation whose rows have neighbouring elements, and how far apart they are: 0 where there is one for all."""
    if modulation is None:
        return stand_in, 0
    matrix = as_matrix(modulation)
    return matrix, 0 if modulation.dim() == 1 else matrix.stride(0)


@torch.library.custom_op("turbo_hydra::ada_rms_norm", mutates_args=())
def _operator(
    x: torch.Tensor,
    scale: torch.Tensor,
    shift: MaybeTensor,
    residual: MaybeTensor,
    gate: MaybeTensor,
    eps: float,
    offset: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    y, h, inverse = _allocate(x, residual)
    if x.numel() == 0:
        return y, h, inverse
    matrix = as_matrix(x)
    width = matrix.shape[1]
    added = matrix if residual is None else as_matrix(residual)
    entries = _entries(x, scale, shift, gate)
    rows = matrix.shape[0] // entries
    scales, scale_stride = _strided(scale, width, matrix)
    shifts, shift_stride = _strided(shift, width, matrix)
    gates, gate_stride = _strided(gate, width, matrix)
    config = launch("ada_rms_norm", "forward", width_class(width), x.device)
    tiles = cdiv(rows, config["ROWS"])
    with on(x.device):
        forward[(entries * tiles,)](
            matrix, added, gates, scales, shifts, y, h, inverse, eps, offset, rows, width, matrix.stride(0),
            added.stride(0), gate_stride, scale_stride, shift_stride, tiles, RESIDUAL=residual is not None,
            GATE=gate is not None, SHIFT=shift is not None, ACC=accumulator(x.dtype), BLOCK=power_of_two(width),
            **config,
        )  # fmt: skip
    return y, h, inverse


def _allocate(x: torch.Tensor, residual: MaybeTensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """y, h (empty without a residual) and the inverse root of each row."""
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    h = torch.empty(0 if residual is None else x.shape, dtype=x.dtype, device=x.device)
    return y, h, torch.empty(x.shape[:-1], dtype=accumulates(x.dtype), device=x.device)


@_operator.register_fake
def _(
    x: torch.Tensor,
    scale: torch.Tensor,
    shift: MaybeTensor,
    residual: MaybeTensor,
    gate: MaybeTensor,
    eps: float,
    offset: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return _allocate(x, residual)


@torch.library.custom_op("turbo_hydra::ada_rms_norm_backward", mutates_args=())
def _operator_backward(
    grad_y: torch.Tensor,
    grad_h: MaybeTensor,
    h: torch.Tensor,
    x: MaybeTensor,
    gate: MaybeTensor,
    scale: torch.Tensor,
    inverse: torch.Tensor,
    shifted: bool,
    entries: int,
    together: bool,
    dtype: torch.dtype,
    offset: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    grad_sum, grad_x, sums = _allocate_gradients(h, gate, shifted, entries, together, dtype)
    if h.numel() == 0:
        return grad_sum, grad_x, sums.zero_()
    matrix, grads = as_matrix(h), as_matrix(grad_y)
    width = h.shape[-1]
    rows = matrix.shape[0] // entries
    others = grads if grad_h is None else as_matrix(grad_h)
    inputs = matrix if x is None else as_matrix(x)
    scales, scale_stride = _strided(scale, width, matrix)
    gates, gate_stride = _strided(gate, width, matrix)
    config = launch("ada_rms_norm", "backward", width_class(width), h.device)
    tiles = cdiv(rows, config["ROWS"])
    steps = cdiv(tiles, max(1, config.pop("PROGRAMS") * processors(h.device) // entries))
    parts = cdiv(tiles, steps)
    partial = torch.empty(sums.shape[0], entries * parts, width, dtype=inverse.dtype, device=h.device)
    with on(h.device):
        backward[(entries * parts,)](
            grads, others, matrix, inputs, gates, scales, inverse, grad_sum, grad_x, partial, offset, rows, width,
            grads.stride(0), others.stride(0), matrix.stride(0), inputs.stride(0), gate_stride, scale_stride, parts,
            steps, FROM_H=grad_h is not None, GATE=gate is not None, SHIFT=shifted, ACC=accumulator(h.dtype),
            BLOCK=power_of_two(width), **config,
        )  # fmt: skip
    groups = sums.shape[0] * sums.shape[1]
    return grad_sum, grad_x, add_up(partial.view(groups, -1, width), dtype).view(sums.shape)


def _allocate_gradients(
    h: torch.Tensor, gate: MaybeTensor, shifted: bool, entries: int, together: bool, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Of the sum, of x where there is a gate, and [scale, shift, gate as far as there are, entries or 1, width]."""
    grad_sum = torch.empty(h.shape, dtype=h.dtype, device=h.device)
    grad_x = torch.empty(0 if gate is None else h.shape, dtype=h.dtype, device=h.device)
    count = 1 + int(shifted) + int(gate is not None)
    return grad_sum, grad_x, torch.empty(count, 1 if together else entries, h.shape[-1], dtype=dtype, device=h.device)


@_operator_backward.register_fake
def _(
    grad_y: torch.Tensor,
    grad_h: MaybeTensor,
    h: torch.Tensor,
    x: MaybeTensor,
    gate: MaybeTensor,
    scale: torch.Tensor,
    inverse: torch.Tensor,
    shifted: bool,
    entries: int,
    together: bool,
    dtype: torch.dtype,
    offset: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return _allocate_gradients(h, gate, shifted, entries, together, dtype)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
    x, scale, shift, residual, gate, _, ctx.offset = inputs
    _, h, inverse = output
    ctx.set_materialize_grads(False)
    ctx.with_residual = residual is not None
    ctx.entries = _entries(x, scale, shift, gate)
    ctx.like = [None if item is None else (item.shape, item.dtype) for item in (scale, shift, gate)]
    ctx.save_for_backward(x if residual is None else h, None if gate is None else x, gate, scale, inverse)


def _differentiate(ctx: Any, grad_y: MaybeTensor, grad_h: MaybeTensor, _: MaybeTensor) -> tuple[Any, ...]:
    h, x, gate, scale, inverse = ctx.saved_tensors
    if grad_y is None:
        grad_y = torch.zeros_like(h)
    # Without a residual nothing is differentiated through h: it is not an output then.
    grad_h = grad_h if ctx.with_residual else None
    like = [item for item in ctx.like if item is not None]
    # Gradients of one shape and dtype, as they mostly are, need no pass of their own.
    dtypes = {dtype for _, dtype in like}
    grad_sum, grad_x, sums = _operator_backward(
        grad_y, grad_h, h, x, gate, scale, inverse, ctx.like[1] is not None, ctx.entries,
        all(len(shape) == 1 for shape, _ in like), dtypes.pop() if len(dtypes) == 1 else inverse.dtype, ctx.offset,
    )  # fmt: skip
    folded = iter(_fold(part, *item) for part, item in zip(sums, like, strict=True))
    of_scale, of_shift, of_gate = (None if item is None else next(folded) for item in ctx.like)
    return (
        grad_sum if gate is None else grad_x,
        of_scale,
        of_shift,
        grad_sum if ctx.with_residual else None,
        of_gate,
        None,
        None,
    )


def _fold(sums: torch.Tensor, shape: torch.Size, dtype: torch.dtype) -> torch.Tensor:
    """The sums of each batch entry as a gradient: added up where one modulation serves all entries."""
    total = sums.sum(0) if len(shape) == 1 and sums.shape[0] > 1 else sums
    return total.reshape(shape).to(dtype)


_operator.register_autograd(_differentiate, setup_context=_save)
