# SPDX-License-Identifier: Apache-2.0
"""Attention and its mask."""

import torch

MASKED = -2.3819763e38  # added to a score that must not count; finite, so that a row without any key stays defined


def make_attention_mask(present: torch.Tensor, new_block: torch.Tensor) -> torch.Tensor:
    """The additive mask [batch, 1, length, length] of a sequence made of blocks.

    A token attends to all tokens of its own block and of the blocks before it.

    present [batch, length] bool: false for padding, which neither attends nor is attended to.
    new_block [length] bool: true where a new block begins.
    """
    block = torch.cumsum(new_block.long(), dim=0)
    visible = block[None, :] <= block[:, None]
    allowed = visible[None] & present[:, None, :] & present[:, :, None]
    return torch.where(allowed[:, None], 0.0, MASKED)


def repeat_kv(hidden: torch.Tensor, repeats: int) -> torch.Tensor:
    """Give each of the query heads its copy of a shared key or value head."""
    batch, heads, length, size = hidden.shape
    if repeats == 1:
        return hidden
    return hidden[:, :, None].expand(batch, heads, repeats, length, size).reshape(batch, heads * repeats, length, size)


def eager_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, scale: float
) -> torch.Tensor:
    """Attention with the softmax in float32.

    query [batch, heads, length, head_size]; key and value with as many heads or a divisor of them; mask None or
    additive [batch, 1, length, length]. Returns [batch, length, heads * head_size].
    """
    repeats = query.shape[1] // key.shape[1]
    key, value = repeat_kv(key, repeats), repeat_kv(value, repeats)
    scores = torch.matmul(query, key.transpose(2, 3)) * scale
    if mask is not None:
        scores = scores + mask
    weights = torch.softmax(scores, dim=-1, dtype=torch.float32).to(query.dtype)
    output = torch.matmul(weights, value)
    return output.transpose(1, 2).flatten(2)
