# SPDX-License-Identifier: Apache-2.0
"""Attention that knows from the mask which tiles are hidden, and stores no scores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from turbo_hydra import fallback
from turbo_hydra.catalogs.remembering import LastResult
from turbo_hydra.kernels.prefix_attention import MaskBlocks, mask_blocks, prefix_attention, unfit

Attention = Callable[..., "tuple[Tensor, Tensor | None]"]


def attention(original: Attention, options: None) -> Attention:
    """Factory for `eager_attention_forward`; the weights, which OpenPI does not look at, are None."""
    last: LastResult[MaskBlocks] = LastResult()

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
        mask = attention_mask
        if mask is not None and mask.dim() == 4:
            mask = mask[:, :, :, : key.shape[2]]
        reason = "dropout" if dropout and module.training else None
        reason = reason or ("weights are wanted" if kwargs.get("output_attentions") else None)
        reason = reason or unfit(query, key, value, mask, scaling)
        if reason is not None:
            fallback(reason)
            return original(module, query, key, value, attention_mask, scaling, dropout, **kwargs)
        blocks: Tensor | MaskBlocks | None = mask
        if mask is not None and attention_mask is not None and not torch.compiler.is_compiling():
            # All layers of a step are given one mask.
            also = (query.shape, key.shape, query.dtype)
            blocks = last.get(lambda: mask_blocks(mask, query, key), (attention_mask,), also)
        output = prefix_attention(query, key, value, blocks, scaling)
        return output.transpose(1, 2).contiguous(), None

    return eager_attention_forward
