# SPDX-License-Identifier: Apache-2.0
"""The norm of all gradients in one launch for each dtype, and all gradients scaled in one pass.

Where there is no device with kernels, what the groups of all scripts do.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from turbo_hydra.catalogs.shared import clip_grad as shared
from turbo_hydra.catalogs.shared.options import ClipGrad
from turbo_hydra.kernels.clip_norm import clip_norm, unfit


def total_norm(original: Callable[..., Tensor], options: ClipGrad) -> Callable[..., Tensor]:
    """Factory for `torch.nn.utils.clip_grad._get_total_norm`."""
    batched = shared.total_norm(original, options)

    @torch.no_grad()
    def _get_total_norm(
        tensors: Tensor | Iterable[Tensor],
        norm_type: float = 2.0,
        error_if_nonfinite: bool = False,
        foreach: bool | None = None,
    ) -> Tensor:
        tensors = [tensors] if isinstance(tensors, Tensor) else list(tensors)
        usual = float(norm_type) == 2.0 and not error_if_nonfinite and foreach is not False
        if not usual or unfit(tensors) is not None:
            return batched(tensors, norm_type, error_if_nonfinite, foreach)
        # As torch has it, the result has the dtype that the gradients' dtypes promote to.
        dtype = functools.reduce(torch.promote_types, {item.dtype for item in tensors})
        return clip_norm(tensors, float("inf"))[0].to(dtype)

    return _get_total_norm


def scale(original: Callable[..., None], options: ClipGrad) -> Callable[..., None]:
    """Factory for `torch.nn.utils.clip_grad._clip_grads_with_norm_`.

    torch multiplies gradients in bfloat16 one by one where the factor is in float32; what unscales gradients for a
    GradScaler takes them together, and rounds each product once as well.
    """
    batched = shared.scale(original, options)

    @torch.no_grad()
    def _clip_grads_with_norm_(
        parameters: Tensor | Iterable[Tensor],
        max_norm: float,
        total_norm: Tensor,
        foreach: bool | None = None,
    ) -> None:
        parameters = [parameters] if isinstance(parameters, Tensor) else list(parameters)
        gradients = [item.grad for item in parameters if item.grad is not None]
        if foreach is False or type(total_norm) is not Tensor or unfit([*gradients, total_norm]) is not None:
            batched(parameters, max_norm, total_norm, foreach)
            return
        factor = torch.clamp(float(max_norm) / (total_norm.float() + 1e-6), max=1.0)
        groups: dict[torch.dtype, list[Tensor]] = {}
        for gradient in gradients:
            groups.setdefault(gradient.dtype, []).append(gradient)
        for alike in groups.values():
            torch._amp_foreach_non_finite_check_and_unscale_(alike, torch.zeros_like(factor), factor)

    return _clip_grads_with_norm_
