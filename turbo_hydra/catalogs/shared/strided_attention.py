# SPDX-License-Identifier: Apache-2.0
"""Attention of transformers through torch's own, whose queries, keys and values are not copied first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from turbo_hydra import fallback

Attention = Callable[..., "tuple[Tensor, Tensor | None]"]


def attention(original: Attention, options: None) -> Attention:
    """Factory for `sdpa_attention_forward`, which copies queries, keys and values into memory without gaps.

    They come as views [batch, heads, length, size] of [batch, length, heads, size], which the kernels take as they are;
    the result then lies in the order in which the model goes on with it. The copies are there for kernels that were
    wrong about views beside a mask of the caller's, so that with a mask nothing is changed.
    """

    def sdpa_attention_forward(
        module: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        dropout: float = 0.0,
        scaling: float | None = None,
        is_causal: bool | None = None,
        **kwargs: Any,
    ) -> tuple[Tensor, Tensor | None]:
        reason = _unfit(module, attention_mask, kwargs)
        if reason is not None:
            fallback(reason)
            return original(module, query, key, value, attention_mask, dropout, scaling, is_causal, **kwargs)
        if is_causal is None:
            is_causal = query.shape[2] > 1 and getattr(module, "is_causal", True)
        output = F.scaled_dot_product_attention(
            query, key, value, dropout_p=dropout, scale=scaling, is_causal=is_causal
        )
        return output.transpose(1, 2).contiguous(), None

    return sdpa_attention_forward


def _unfit(module: Any, attention_mask: Tensor | None, kwargs: dict[str, Any]) -> str | None:
    """Why this call stays as it is; None if it can go without copies."""
    if attention_mask is not None:
        return "a mask"
    if hasattr(module, "num_key_value_groups"):
        return "keys and values are shared by heads"
    if kwargs.get("output_attentions") or kwargs.get("head_mask") is not None:
        return "weights are wanted or masked"
    return None
