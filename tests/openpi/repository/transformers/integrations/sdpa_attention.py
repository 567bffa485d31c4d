# SPDX-License-Identifier: Apache-2.0
"""Attention through torch's own, with copies as transformers 4.53 makes them."""

from torch.nn import functional


def sdpa_attention_forward(
    module, query, key, value, attention_mask, dropout=0.0, scaling=None, is_causal=None, **kwargs
):
    query, key, value = query.contiguous(), key.contiguous(), value.contiguous()
    if is_causal is None:
        is_causal = query.shape[2] > 1 and attention_mask is None and getattr(module, "is_causal", True)
    output = functional.scaled_dot_product_attention(
        query, key, value, attn_mask=attention_mask, dropout_p=dropout, scale=scaling, is_causal=is_causal
    )
    return output.transpose(1, 2).contiguous(), None
