# SPDX-License-Identifier: Apache-2.0
"""AdamW over all parameters in one launch for each combination of dtypes.

    g = grad * factor
    p = p * (1 - lr * weight_decay)
    m = m + (1 - beta1) * (g - m);  v = beta2 * v + (1 - beta2) * g^2
    p = p - lr / (1 - beta1^step) * m / (sqrt(v) / sqrt(1 - beta2^step) + eps)

in float32, and each result rounded once, as torch's fused AdamW does. With `seed`, bf16 parameters are rounded up or
down at random, in proportion, so that updates below half a unit in the last place are not all lost; the random numbers
are a hash of seed, tensor and element, and so the same in each run.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from . import language, multi_tensor
from .adamw_kernels import step_all
from .configurations import launch
from .language import on

Tensors = Sequence[torch.Tensor]
MaybeTensor = torch.Tensor | None


def adamw_plain(
    params: Tensors,
    grads: Tensors,
    exp_avgs: Tensors,
    exp_avg_sqs: Tensors,
    step: int,
    lr: float,
    beta1: float,
    beta2: float,
    weight_decay: float,
    eps: float,
    factor: MaybeTensor = None,
    maximize: bool = False,
) -> None:
    """The same statement by statement in PyTorch, tensor by tensor; the reference where all are float64."""
    for p, grad, m, v in zip(params, grads, exp_avgs, exp_avg_sqs, strict=True):
        dtype = torch.float64 if p.dtype == torch.float64 else torch.float32
        g = grad.to(dtype)
        g = -g if maximize else g
        g = g if factor is None else g * factor.to(dtype)
        wide, first, second = p.to(dtype), m.to(dtype), v.to(dtype)
        wide = wide * (1 - lr * weight_decay)
        first = first + (1 - beta1) * (g - first)
        second = beta2 * second + (1 - beta2) * g * g
        below = second.sqrt() / (1 - beta2**step) ** 0.5 + eps
        p.copy_(wide - lr / (1 - beta1**step) * first / below)
        m.copy_(first)
        v.copy_(second)


def unfit(params: Tensors, grads: Tensors, exp_avgs: Tensors, exp_avg_sqs: Tensors) -> str | None:
    """Why the kernel does not take these tensors, None where it does."""
    if not params:
        return "no parameters"
    if any(tensor.dtype == torch.float64 for tensor in params):
        return "float64"
    return language.unfit(params[0]) or multi_tensor.unfit(params, grads, exp_avgs, exp_avg_sqs)


def adamw(
    params: Tensors,
    grads: Tensors,
    exp_avgs: Tensors,
    exp_avg_sqs: Tensors,
    step: int,
    *,
    lr: float,
    beta1: float,
    beta2: float,
    weight_decay: float,
    eps: float,
    factor: MaybeTensor = None,
    maximize: bool = False,
    seed: int | None = None,
) -> None:
    """One step of AdamW, in place, without waiting for the device.

    Parameters
    ----------
    params, grads, exp_avgs, exp_avg_sqs : sequence of Tensor
        Of equal shapes in equal places; contiguous, on one device; float32, bf16 or fp16, each list's dtypes its own.
        Parameters and states are written.
    step : int
        Number of this step, from 1; the same for all. Parameters that have taken fewer steps go in a call of their own.
    lr, beta1, beta2, weight_decay, eps : float
        As torch.optim.AdamW's.
    factor : Tensor, optional
        What gradients are multiplied by, float32 with one element on the device: `clip_norm`'s.
    maximize : bool
        Whether the gradients' direction is to be followed.
    seed : int, optional
        Rounds bf16 parameters at random with this seed, which should differ from step to step; other dtypes are rounded
        to nearest. Without the kernel it has no effect.

    Notes
    -----
    The path of `adamw_plain` where `unfit` gives a reason.
    """
    if unfit(params, grads, exp_avgs, exp_avg_sqs) is not None:
        with torch.no_grad():
            adamw_plain(
                params, grads, exp_avgs, exp_avg_sqs, step, lr, beta1, beta2, weight_decay, eps, factor, maximize
            )
        return
    decay = 1 - lr * weight_decay
    size = lr / (1 - beta1**step)
    root = (1 - beta2**step) ** -0.5
    settings = (decay, beta1, beta2, size, root, eps, maximize, seed)
    with torch.no_grad():
        if torch.compiler.is_compiling():
            _operator(params, grads, exp_avgs, exp_avg_sqs, factor, *settings)
            return
        # To hand the operator thousands of tensors costs the host more than the launch does.
        _run(params, grads, exp_avgs, exp_avg_sqs, factor, *settings)
        for written in (params, exp_avgs, exp_avg_sqs):
            torch.autograd.graph.increment_version(written)


def _run(
    params: Sequence[torch.Tensor],
    grads: Sequence[torch.Tensor],
    exp_avgs: Sequence[torch.Tensor],
    exp_avg_sqs: Sequence[torch.Tensor],
    factor: MaybeTensor,
    decay: float,
    beta1: float,
    beta2: float,
    size: float,
    root: float,
    eps: float,
    maximize: bool,
    seed: int | None,
) -> None:
    device = params[0].device
    for dtypes, lists in multi_tensor.by_dtype(params, grads, exp_avgs, exp_avg_sqs):
        at_random = seed is not None and dtypes[0] == torch.bfloat16
        config = launch("adamw", "step", "16_bit_state" if dtypes[2].itemsize == 2 else "default", device)
        plan = multi_tensor.parts(multi_tensor.sizes(lists[0]), config["CHUNK"], device)
        if plan.programs == 0:
            continue
        addresses, aligned = multi_tensor.ADDRESSES.get(("adamw", dtypes), lists)
        with on(device):
            step_all[(plan.programs,)](
                addresses, len(lists[0]), plan.tensors, plan.starts, plan.sizes,
                addresses if factor is None else factor,
                (seed or 0) & 0x7FFFFFFF, -1.0 if maximize else 1.0, decay, 1 - beta1, beta2, 1 - beta2, size, root,
                eps,
                **dict(zip("PGMV", map(multi_tensor.element, dtypes), strict=True)), FACTOR=factor is not None,
                AT_RANDOM=at_random, ALIGNED=aligned, **config,
            )  # fmt: skip


_operator = torch.library.custom_op("turbo_hydra::adamw", mutates_args=("params", "exp_avgs", "exp_avg_sqs"))(_run)


@_operator.register_fake
def _(*_: object) -> None:
    """It gives nothing back."""
