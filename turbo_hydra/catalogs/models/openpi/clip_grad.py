# SPDX-License-Identifier: Apache-2.0
"""The norm of all gradients in one launch for each dtype; where there is no kernel, what all scripts' groups do."""

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
