# SPDX-License-Identifier: Apache-2.0
"""Cross entropy of a linear layer's outputs for a large vocabulary, of which a part is there at a time.

What the kernel `linear_cross_entropy` does, in torch's own operations: for a CPU, for logits that are capped before the
loss, and for losses that are divided by a number of items from elsewhere. A part's logits become its losses and, in the
same memory, their gradient, from which both gradients are multiplied at once. Nothing of the size [tokens, vocabulary]
is kept, and no more products are made than without parts.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

# Bytes of float32 logits that are there at a time: on a CPU what its caches can still help with, on a device what keeps
# the products large.
PART = {"cpu": 64 << 20}
LARGE_PART = 1 << 30


def chunked_loss(
    hidden: Tensor, weight: Tensor, target: Tensor, share: Tensor, ignore_index: int = -100, softcap: float = 0.0
) -> Tensor:
    """Sum of the cross entropies of linear(hidden, weight) times `share`; gradients are made in the forward pass.

    Parameters
    ----------
    hidden : Tensor
        [..., K].
    weight : Tensor
        [V, K], of the same dtype and device.
    target : Tensor
        int64 [...], 0 to V - 1 or `ignore_index`.
    share : Tensor
        [], float32: one over the number of items. It gets no gradient.
    ignore_index : int
        Targets that count nothing.
    softcap : float
        Logits become softcap * tanh(logits / softcap); 0 leaves them.

    Returns
    -------
    Tensor
        [], float32 (float64 for float64). It can be differentiated once.
    """
    grads = torch.is_grad_enabled()
    loss, _, _ = _operator(
        hidden, weight, target, share, ignore_index, softcap,
        grads and hidden.requires_grad, grads and weight.requires_grad,
    )  # fmt: skip
    result: Tensor = loss
    return result


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


@torch.library.custom_op("turbo_hydra::chunked_loss", mutates_args=())
def _operator(
    hidden: Tensor, weight: Tensor, target: Tensor, share: Tensor, ignore_index: int, softcap: float,
    for_hidden: bool, for_weight: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    x, y = hidden.reshape(-1, hidden.shape[-1]), target.reshape(-1)
    wide = _wide(x.dtype)
    part = max(1, PART.get(x.device.type, LARGE_PART) // (weight.shape[0] * wide.itemsize))
    loss = torch.zeros((), dtype=wide, device=x.device)
    grad_hidden = torch.empty_like(x) if for_hidden else x.new_empty(0)
    # Of several parts the sum is kept in more digits than they have.
    summed = wide if part < x.shape[0] else weight.dtype
    grad_weight = torch.zeros(weight.shape, dtype=summed, device=x.device) if for_weight else weight.new_empty(0)
    with torch.autocast(x.device.type, enabled=False):
        for start in range(0, x.shape[0], part):
            some = slice(start, start + part)
            losses, gradient = _part(x[some], weight, y[some], share, ignore_index, softcap, for_hidden or for_weight)
            loss += losses
            if for_hidden:
                torch.mm(gradient, weight, out=grad_hidden[some])
            if for_weight and grad_weight.dtype == gradient.dtype:
                grad_weight.addmm_(gradient.T, x[some])
            elif for_weight:
                grad_weight += gradient.T @ x[some]
            del gradient
    return loss * share, grad_hidden.view(hidden.shape if for_hidden else 0), grad_weight.to(weight.dtype)


def _part(
    x: Tensor, weight: Tensor, target: Tensor, share: Tensor, ignore_index: int, softcap: float, gradient: bool
) -> tuple[Tensor, Tensor]:
    """Sum of the losses of some rows, and the gradient of the logits in their dtype."""
    logits = F.linear(x, weight)
    dtype = logits.dtype
    if softcap:
        # In the model's dtype, as models cap them.
        capped = torch.tanh(logits / softcap)
        logits = capped * softcap
    logits = logits.to(_wide(dtype))
    valid = target != ignore_index
    known = target.where(valid, 0)[:, None]
    normaliser = logits.logsumexp(-1, keepdim=True)
    losses = ((normaliser - logits.gather(-1, known)) * valid[:, None]).sum()
    if not gradient:
        return losses, logits
    probabilities = logits.sub_(normaliser).exp_()
    probabilities.scatter_add_(-1, known, probabilities.new_full((), -1.0).expand_as(known))
    probabilities.mul_(torch.where(valid, share, 0).to(probabilities.dtype)[:, None])
    through = probabilities.to(dtype)
    if softcap:
        through = through * (1.0 - capped * capped)
    return losses, through


@_operator.register_fake
def _(
    hidden: Tensor, weight: Tensor, target: Tensor, share: Tensor, ignore_index: int, softcap: float,
    for_hidden: bool, for_weight: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    return (
        hidden.new_empty((), dtype=_wide(hidden.dtype)),
        hidden.new_empty(hidden.shape if for_hidden else 0),
        weight.new_empty(weight.shape if for_weight else 0),
    )


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *_, ctx.for_hidden, ctx.for_weight = inputs
    ctx.save_for_backward(*output[1:])
    ctx.set_materialize_grads(False)


def _differentiate(ctx: Any, grad: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
    if grad is None:
        return (None,) * 8
    wanted = zip(ctx.saved_tensors, (ctx.for_hidden, ctx.for_weight), strict=True)
    return (*(saved * grad.to(saved.dtype) if asked else None for saved, asked in wanted), *(None,) * 6)


_operator.register_autograd(_differentiate, setup_context=_save)
