# SPDX-License-Identifier: Apache-2.0
"""Rotary embedding of queries and keys in one launch."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from torch import Tensor

from turbo_hydra import fallback
from turbo_hydra.catalogs.shared.plain import not_plain
from turbo_hydra.kernels.rope import rope, unfit

Rotated = tuple[Tensor, Tensor]


def apply(original: Callable[..., Rotated], options: None) -> Callable[..., Rotated]:
    """Factory for `apply_rotary_pos_emb`.

    Its fifth positional parameter was the unused `position_ids` until transformers 4 and is `unsqueeze_dim` since: the
    replacement has the parameters of the original that is there.
    """

    def rotated(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, unsqueeze_dim: int) -> Rotated | None:
        reason = _unfit(q, k, cos, sin, unsqueeze_dim)
        if reason is not None:
            fallback(reason)
            return None
        return rope(q, k, cos, sin)

    def with_positions(
        q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, position_ids: Any = None, unsqueeze_dim: int = 1
    ) -> Rotated:
        result = rotated(q, k, cos, sin, unsqueeze_dim)
        return original(q, k, cos, sin, position_ids, unsqueeze_dim) if result is None else result

    def without(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, unsqueeze_dim: int = 1) -> Rotated:
        result = rotated(q, k, cos, sin, unsqueeze_dim)
        return original(q, k, cos, sin, unsqueeze_dim) if result is None else result

    return with_positions if "position_ids" in inspect.signature(original).parameters else without


def _unfit(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, unsqueeze_dim: int) -> str | None:
    """Why the kernel is not for this call; None if it is. Looks at metadata only."""
    if unsqueeze_dim != 1:
        return "heads that are not in dimension 1"
    if cos.dtype != q.dtype:
        return "cosines of another dtype, to which the result would be promoted"
    return not_plain(q, k, cos, sin) or unfit(q, k, cos, sin)
