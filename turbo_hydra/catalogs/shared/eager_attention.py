# SPDX-License-Identifier: Apache-2.0
"""Scale, mask, softmax and casts of the eager attention in one pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from turbo_hydra import fallback
from turbo_hydra.kernels.softmax import softmax, unfit

Attention = Callable[..., "tuple[Tensor, Tensor | None]"]


def attention(original: Attention, options: None) -> Attention:
    """Factory for `eager_attention_forward`.

    Query heads that share a key/value head are rows of one product, so that keys and values are not repeated.
    """

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
        reason = "dropout" if dropout and module.training else _unfit(query, key, attention_mask)
        if reason is not None:
            fallback(reason)
            return original(module, query, key, value, attention_mask, scaling, dropout, **kwargs)
        mask = None if attention_mask is None else attention_mask[:, :, :, : key.shape[2]]
        batch, heads, length, width = query.shape
        shared = key.shape[1]
        # [B, H, Q, D] as [B, G, H/G * Q, D]: the heads of a group lie beside each other.
        rows = query.reshape(batch, shared, heads // shared * length, width)
        scores = (rows @ key.transpose(2, 3)).view(batch, heads, length, -1)
        weights = softmax(scores, mask, scaling)
        output = weights.view(batch, shared, heads // shared * length, -1) @ value
        return output.view(batch, heads, length, -1).transpose(1, 2).contiguous(), weights

    return eager_attention_forward


def _unfit(query: Tensor, key: Tensor, mask: Tensor | None) -> str | None:
    """Why the kernel is not for this call; None if it is. Looks at metadata only."""
    if query.dim() != 4 or query.shape[1] % key.shape[1] or query.dtype != key.dtype:
        return "heads that do not divide, or dtypes that differ"
    if mask is not None and (mask.dim() != 4 or mask.requires_grad):
        return "a mask that is not a constant of four dimensions"
    return unfit(query) or (None if mask is None or mask.device == query.device else "the mask is elsewhere")
