# SPDX-License-Identifier: Apache-2.0
"""torch's fused attention in place of the eager one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from turbo_hydra import fallback
from turbo_hydra.catalogs.remembering import LastResult

Attention = Callable[..., "tuple[Tensor, Tensor | None]"]
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def attention(original: Attention, options: None) -> Attention:
    """Factory for `eager_attention_forward`, which gives [batch, length, heads, width] and the weights: here None.

    A token that may attend to nothing (the prompt's padding) gets the mean of the values, as before.
    """
    prepared: LastResult[tuple[Tensor, Tensor]] = LastResult()

    def eager_attention_forward(
        module: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        scaling: float,
        dropout: float = 0.0,
        **kwargs: Any,
    ) -> tuple[Tensor, Tensor | None]:
        asked = kwargs.get("output_attentions") or (dropout and module.training)
        reason = "weights or dropout are asked for" if asked else _unfit(query, key, value, attention_mask)
        if reason is not None:
            fallback(reason)
            return original(module, query, key, value, attention_mask, scaling, dropout, **kwargs)
        grouped = query.shape[1] != key.shape[1]
        bias, keyless = None, None
        if attention_mask is not None:
            if torch.compiler.is_compiling():
                bias, keyless = _prepare(attention_mask, query.dtype)
            else:
                # All layers of a step are given one mask.
                make = lambda: _prepare(attention_mask, query.dtype)  # noqa: E731
                bias, keyless = prepared.get(make, (attention_mask,), query.dtype)
        output = F.scaled_dot_product_attention(query, key, value, attn_mask=bias, scale=scaling, enable_gqa=grouped)
        if keyless is not None:
            mean = value.mean(dim=2, keepdim=True).repeat_interleave(query.shape[1] // value.shape[1], dim=1)
            output = torch.where(keyless, mean, output)
        return output.transpose(1, 2).contiguous(), None

    return eager_attention_forward


def _unfit(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> str | None:
    """Why the fused attention is not for this call; None if it is. Looks at metadata only."""
    if query.dim() != 4 or query.dtype not in _DTYPES or key.dtype != query.dtype or value.dtype != query.dtype:
        return "dtypes that the fused attention does not take"
    if query.shape[1] % key.shape[1] or key.shape[:3] != value.shape[:3]:
        return "heads that do not divide"
    if mask is None:
        return None
    if mask.requires_grad or not mask.is_floating_point() or mask.dim() != 4 or mask.shape[-1] != key.shape[2]:
        return "a mask that is not a constant float mask over the keys"
    return None if mask.device == query.device else "the mask is elsewhere"


def _prepare(mask: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The mask for the kernel, and the rows [batch, 1, length, 1] in which it leaves no key."""
    # lerobot masks with -2.4e38; no score that is meant to count is anywhere near.
    keyless = (mask < -1e38).all(dim=-1, keepdim=True)
    return mask.masked_fill(keyless, 0.0).to(dtype), keyless
