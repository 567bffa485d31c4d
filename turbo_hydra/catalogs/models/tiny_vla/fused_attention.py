# SPDX-License-Identifier: Apache-2.0
"""torch's fused attention in place of the eager one."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from turbo_hydra import fallback
from turbo_hydra.catalogs.models.tiny_vla.options import FusedAttention
from turbo_hydra.catalogs.remembering import LastResult

Attention = Callable[[Tensor, Tensor, Tensor, "Tensor | None", float], Tensor]
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def attention(original: Attention, options: FusedAttention) -> Attention:
    """Factory for `tiny_vla.attention.eager_attention`."""
    min_length = options.min_length
    prepared: LastResult[tuple[Tensor, Tensor]] = LastResult()

    def eager_attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float) -> Tensor:
        reason = _unfit(query, key, value, mask, min_length)
        if reason is not None:
            fallback(reason)
            return original(query, key, value, mask, scale)
        grouped = query.shape[1] != key.shape[1]
        if mask is None:
            output = F.scaled_dot_product_attention(query, key, value, scale=scale, enable_gqa=grouped)
            return output.transpose(1, 2).flatten(2)
        if torch.compiler.is_compiling():
            bias, keyless = _prepare(mask, query.dtype)
        else:
            # All layers of a step are given one mask.
            bias, keyless = prepared.get(lambda: _prepare(mask, query.dtype), (mask,), query.dtype)
        output = F.scaled_dot_product_attention(query, key, value, attn_mask=bias, scale=scale, enable_gqa=grouped)
        # The fused backward pass loses the count of keys in rows where all of them are masked, so such rows get the
        # mean of the values explicitly.
        mean = value.mean(dim=2).repeat_interleave(query.shape[1] // value.shape[1], dim=1).flatten(1)
        return torch.where(keyless, mean[:, None], output.transpose(1, 2).flatten(2))

    return eager_attention


def _unfit(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, min_length: int) -> str | None:
    """Why the fused attention is not for this call; None if it is. Looks at metadata only."""
    if query.shape[2] < min_length:
        return "shorter than min_length"
    if query.dtype not in _DTYPES or key.dtype != query.dtype or value.dtype != query.dtype:
        return "dtypes that the fused attention does not take"
    if query.shape[1] % key.shape[1] or key.shape[:3] != value.shape[:3]:
        return "heads that do not divide"
    if mask is not None and (mask.requires_grad or not mask.is_floating_point() or mask.dim() != 4):
        return "a mask that is not a constant float mask"
    return None


def _prepare(mask: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The mask for the kernel, and the rows [batch, length, 1] in which it leaves no key."""
    # The example masks with -2.4e38; no score that is meant to count is anywhere near.
    keyless = (mask < -1e38).all(dim=-1, keepdim=True)
    return mask.masked_fill(keyless, 0.0).to(dtype), keyless[:, 0]
