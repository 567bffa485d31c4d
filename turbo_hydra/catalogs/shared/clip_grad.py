# SPDX-License-Identifier: Apache-2.0
"""Gradient clipping in one batched pass for the norm and one, where it is needed at all, for the scale.

The targets are the two halves of `clip_grad_norm_`. torch takes the norm of each gradient in the gradient's own dtype,
moves each norm to the first gradient's device by itself, and multiplies all gradients though the factor is 1. Here the
norms of low precision are summed in float32, nothing waits for a device, and on a CPU, where looking at a number is
free, a factor of 1 is no pass at all. Where Triton kernels run, the norm is one launch for each dtype.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from turbo_hydra import fallback
from turbo_hydra.catalogs.shared.options import ClipGrad
from turbo_hydra.kernels import clip_norm as kernel

DEVICES = ("cpu", "cuda", "xpu")
DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


def total_norm(original: Callable[..., Tensor], options: ClipGrad) -> Callable[..., Tensor]:
    """Factory for `torch.nn.utils.clip_grad._get_total_norm`."""

    @torch.no_grad()
    def _get_total_norm(
        tensors: Tensor | Iterable[Tensor],
        norm_type: float = 2.0,
        error_if_nonfinite: bool = False,
        foreach: bool | None = None,
    ) -> Tensor:
        tensors = [tensors] if isinstance(tensors, Tensor) else list(tensors)
        reason = "the norm is asked whether it is finite" if error_if_nonfinite else _unfit(tensors, foreach)
        if reason is not None:
            fallback(reason)
            return original(tensors, norm_type, error_if_nonfinite, foreach)
        # As torch has it, the result has the dtype that the gradients' dtypes promote to.
        dtype = functools.reduce(torch.promote_types, {item.dtype for item in tensors})
        if float(norm_type) == 2.0 and kernel.unfit(tensors) is None:
            return kernel.clip_norm(tensors, float("inf"))[0].to(dtype)
        norms: list[Tensor] = []
        for alike in _by_dtype(tensors):
            precise = torch.promote_types(alike[0].dtype, torch.float32)
            norms += torch._foreach_norm(alike, float(norm_type), dtype=precise)
        norm: Tensor = torch.linalg.vector_norm(torch.stack(norms), float(norm_type)).to(dtype)
        return norm

    return _get_total_norm


def scale(original: Callable[..., None], options: ClipGrad) -> Callable[..., None]:
    """Factory for `torch.nn.utils.clip_grad._clip_grads_with_norm_`."""

    @torch.no_grad()
    def _clip_grads_with_norm_(
        parameters: Tensor | Iterable[Tensor],
        max_norm: float,
        total_norm: Tensor,
        foreach: bool | None = None,
    ) -> None:
        parameters = [parameters] if isinstance(parameters, Tensor) else list(parameters)
        gradients = [item.grad for item in parameters if item.grad is not None]
        reason = _unfit(gradients, foreach)
        if reason is None and (total_norm.device != gradients[0].device or type(total_norm) is not Tensor):
            reason = "a norm from elsewhere"
        if reason is not None:
            fallback(reason)
            original(parameters, max_norm, total_norm, foreach)
            return
        factor = torch.clamp(float(max_norm) / (total_norm + 1e-6), max=1.0)
        free_to_look = factor.device.type == "cpu" and not torch.compiler.is_compiling()
        if options.skip_unclipped and free_to_look and bool(factor == 1.0):
            return
        for alike in _by_dtype(gradients):
            torch._foreach_mul_(alike, factor)

    return _clip_grads_with_norm_


def _by_dtype(tensors: list[Tensor]) -> Iterable[list[Tensor]]:
    groups: dict[torch.dtype, list[Tensor]] = {}
    for item in tensors:
        groups.setdefault(item.dtype, []).append(item)
    return groups.values()


def _unfit(gradients: list[Any], foreach: bool | None) -> str | None:
    """Why one pass is not for these gradients; None if it is."""
    if foreach is False:
        return "the script chose one gradient at a time"
    if not gradients:
        return "no gradients"
    if not all(type(item) is Tensor and item.layout is torch.strided for item in gradients):
        return "gradients that are not plain dense tensors"
    device = gradients[0].device
    if device.type not in DEVICES or not all(item.dtype in DTYPES for item in gradients):
        return "gradients that the batched kernels do not take"
    if not all(item.device == device for item in gradients):
        return "gradients on several devices"
    return None
