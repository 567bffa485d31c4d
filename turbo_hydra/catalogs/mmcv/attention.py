# SPDX-License-Identifier: Apache-2.0
"""Multi-head attention whose weights nobody asks for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from turbo_hydra import fallback, redecorated

Function = Callable[..., Any]


def forward(original: Function, options: None) -> Function:
    """Factory for `mmcv.cnn.bricks.transformer.MultiheadAttention.forward`."""

    def make(inner: Function) -> Function:
        def forward(
            self: Any,
            query: Tensor,
            key: Tensor | None = None,
            value: Tensor | None = None,
            identity: Tensor | None = None,
            query_pos: Tensor | None = None,
            key_pos: Tensor | None = None,
            attn_mask: Tensor | None = None,
            key_padding_mask: Tensor | None = None,
            **kwargs: Any,
        ) -> Tensor:
            attention = self.attn
            of_key = query if key is None else key
            reason = None if type(attention) is torch.nn.MultiheadAttention else "another attention inside"
            if key_pos is None and query_pos is not None and query_pos.shape != of_key.shape:
                reason = "a query's position of another shape than the key"
            if query.device.type == "cpu" and attention.training and attention.dropout > 0:
                # There is no fused kernel that drops, and what torch composes instead is no faster.
                reason = "dropout on a CPU"
            if reason is not None:
                fallback(reason)
                result: Tensor = inner(
                    self, query, key, value, identity, query_pos, key_pos, attn_mask, key_padding_mask, **kwargs
                )
                return result
            key = of_key
            value = key if value is None else value
            identity = query if identity is None else identity
            key_pos = query_pos if key_pos is None else key_pos
            itself = key is query and key_pos is query_pos
            if query_pos is not None:
                query = query + query_pos
            if itself:
                key = query
            elif key_pos is not None:
                key = key + key_pos
            if self.batch_first:
                query, key, value = (item.transpose(0, 1) for item in (query, key, value))
            output = attention(
                query, key, value, attn_mask=attn_mask, key_padding_mask=key_padding_mask, need_weights=False
            )[0]
            if self.batch_first:
                output = output.transpose(0, 1)
            moved: Tensor = identity + self.dropout_layer(self.proj_drop(output))
            return moved

        return forward

    return redecorated(original, make)
