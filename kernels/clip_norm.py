# SPDX-License-Identifier: Apache-2.0
"""The 2-norm of thousands of tensors together, and the factor that clips it, without waiting for the device.

One launch for each dtype adds up squares, in float32, a part of a tensor at a time; one more adds up the parts, always
in the same order, and makes the factor. The factor may be handed to `adamw`, which spares the pass that scales
gradients.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from . import language, multi_tensor
from .configurations import launch
from .language import jit, on, tl

# What torch.nn.utils.clip_grad_norm_ adds to the norm before it divides.
EPS = 1e-6


def clip_norm_plain(tensors: Sequence[torch.Tensor], max_norm: float) -> tuple[torch.Tensor, torch.Tensor]:
    """The library's path; the reference where the tensors are float64."""
    if not tensors:
        return torch.zeros(()), torch.ones(())
    wide = torch.float64 if any(item.dtype == torch.float64 for item in tensors) else torch.float32
    norms = [item.to(tensors[0].device, wide) for item in torch._foreach_norm(list(tensors))]
    norm = torch.linalg.vector_norm(torch.stack(norms))
    return norm, torch.clamp(max_norm / (norm + EPS), max=1.0)


def unfit(tensors: Sequence[torch.Tensor]) -> str | None:
    """Why the kernel does not take these tensors, None where it does."""
    if not tensors:
        return "no tensors"
    if any(tensor.dtype == torch.float64 for tensor in tensors):
        return "float64"
    return language.unfit(tensors[0]) or multi_tensor.unfit(tensors)


def clip_norm(tensors: Sequence[torch.Tensor], max_norm: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Norm of all elements of all tensors, and what they are to be multiplied by so that it is at most `max_norm`.

    Parameters
    ----------
    tensors : sequence of Tensor
        Gradients: contiguous, of any shapes, on one device, float32, bf16 or fp16. They are not changed.
    max_norm : float
        Largest norm wanted.

    Returns
    -------
    norm, factor : Tensor
        float32, no dimension, on the device. `factor` is min(1, max_norm / (norm + 1e-6)); NaN where the norm is NaN, 0
        where it is infinite. The library's path where `unfit` gives a reason.
    """
    if unfit(tensors) is not None:
        return clip_norm_plain(tensors, max_norm)
    # The operator is what a compiled graph holds; to hand it hundreds of tensors costs more than the launches.
    run = _operator if torch.compiler.is_compiling() else _run
    result: tuple[torch.Tensor, torch.Tensor] = run(tensors, max_norm)
    return result


@jit
def _squares(
    addresses: Any,
    tensors: Any,
    starts: Any,
    sizes: Any,
    sums: Any,
    ELEMENT: tl.constexpr,
    ALIGNED: tl.constexpr,
    CHUNK: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    program = tl.program_id(0)
    number = tl.load(tensors + program)
    start = tl.multiple_of(tl.load(starts + program), 16)
    size = tl.load(sizes + number)
    pointer = tl.load(addresses + number).to(tl.pointer_type(ELEMENT))
    if ALIGNED:
        pointer = tl.multiple_of(pointer, 16)
    total = tl.zeros([BLOCK], dtype=tl.float32)
    if start + CHUNK <= size:
        for step in range(0, CHUNK, BLOCK):
            x = tl.load(pointer + start + step + tl.arange(0, BLOCK)).to(tl.float32)
            total += x * x
    else:
        for step in range(0, CHUNK, BLOCK):
            at = start + step + tl.arange(0, BLOCK)
            x = tl.load(pointer + at, mask=at < size, other=0.0).to(tl.float32)
            total += x * x
    tl.store(sums + program, tl.sum(total, axis=0))


@jit
def _finish(sums: Any, count: Any, norm: Any, factor: Any, max_norm: Any, eps: Any, BLOCK: tl.constexpr) -> None:
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for step in range(0, count, BLOCK):
        at = step + tl.arange(0, BLOCK)
        total += tl.load(sums + at, mask=at < count, other=0.0)
    found = tl.sqrt(tl.sum(total, axis=0))
    tl.store(norm, found)
    wanted = max_norm / (found + eps)
    # Not a minimum: NaN has to stay.
    tl.store(factor, tl.where(wanted > 1.0, 1.0, wanted))


def _run(tensors: Sequence[torch.Tensor], max_norm: float) -> tuple[torch.Tensor, torch.Tensor]:
    device = tensors[0].device
    norm, factor = (torch.empty((), dtype=torch.float32, device=device) for _ in range(2))
    config = launch("clip_norm", "squares", "default", device)
    plans = [
        (dtype, lists, multi_tensor.parts(multi_tensor.sizes(lists[0]), config["CHUNK"], device))
        for (dtype,), lists in multi_tensor.by_dtype(tensors)
    ]
    count = sum(plan.programs for _, _, plan in plans)
    sums = torch.empty(count, dtype=torch.float32, device=device)
    begin = 0
    with on(device):
        for dtype, lists, plan in plans:
            if plan.programs:
                addresses, aligned = multi_tensor.ADDRESSES.get(("clip_norm", dtype), lists)
                _squares[(plan.programs,)](
                    addresses, plan.tensors, plan.starts, plan.sizes, sums[begin:],
                    ELEMENT=multi_tensor.element(dtype), ALIGNED=aligned, **config,
                )  # fmt: skip
                begin += plan.programs
        _finish[(1,)](sums, count, norm, factor, max_norm, EPS, BLOCK=1024)
    return norm, factor


_operator = torch.library.custom_op("turbo_hydra::clip_norm", mutates_args=())(_run)


@_operator.register_fake
def _(tensors: Sequence[torch.Tensor], max_norm: float) -> tuple[torch.Tensor, torch.Tensor]:
    norm = torch.empty((), dtype=torch.float32, device=tensors[0].device)
    return norm, torch.empty_like(norm)
