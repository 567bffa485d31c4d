# SPDX-License-Identifier: Apache-2.0
"""Which tiles of an attention mask hide every key, which hide none: what `prefix_attention` skips and where it reads.

Derived from the mask itself, whatever it is: prefixes, padding in the middle, causal parts, biases. A tile is some
tokens with all query heads that share a key/value head, by some keys.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from .configurations import launch
from .language import cdiv, jit, on, power_of_two, tl


class MaskBlocks(NamedTuple):
    """A mask with what was derived from it.

    Parameters
    ----------
    mask : Tensor
        [B, 1, Q, K]: boolean, True where a query may attend; or additive. An additive value of -30,000 or less hides.
    kinds : Tensor
        int8 [B, Q tiles, K tiles]: 0 hides every key from every query of the tile, 1 some or biases them, 2 none.
    columns : Tensor
        int32 [B, Q tiles, K tiles + 3]: number of tiles of kind 2, of kinds 2 and 1, then these tiles in that order.
    """

    mask: torch.Tensor
    kinds: torch.Tensor
    columns: torch.Tensor


def head_class(width: int, element_size: int) -> str:
    """Shape class of attention kernels: the power of two that a head fits into and the bytes of its elements."""
    return f"head_{max(16, power_of_two(width))}_{element_size}"


def tiles(query: torch.Tensor, key: torch.Tensor) -> tuple[int, int]:
    """Tokens and keys of a tile for queries [B, H, Q, D] and keys [B, G, K, D]."""
    return _tiles(query.shape[1] // key.shape[1], query.shape[-1], query.element_size(), query.device)


def _tiles(group: int, width: int, element_size: int, device: torch.device) -> tuple[int, int]:
    sizes = launch("prefix_attention", "tiles", head_class(width, element_size), device)
    return max(1, sizes["BLOCK_M"] // group), sizes["BLOCK_N"]


@jit
def _blocks(
    mask: Any,
    kinds_out: Any,
    columns: Any,
    queries: Any,
    keys: Any,
    key_tiles: Any,
    batch_stride: Any,
    query_stride: Any,
    key_stride: Any,
    TOKENS: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_J: tl.constexpr,
    BOOLEAN: tl.constexpr,
) -> None:
    i = tl.program_id(0)
    b = tl.program_id(1).to(tl.int64)
    t = tl.arange(0, BLOCK_T)
    token = i * TOKENS + t
    live = ((t < TOKENS) & (token < queries))[:, None]
    index = tl.arange(0, BLOCK_J)
    kinds = tl.zeros((BLOCK_J,), tl.int32)
    row = (mask + b * batch_stride + token.to(tl.int64) * query_stride)[:, None]
    for j in range(key_tiles):
        key = (j * BLOCK_N + tl.arange(0, BLOCK_N))[None, :]
        inside = live & (key < keys)
        value = tl.load(row + key.to(tl.int64) * key_stride, mask=inside, other=0)
        if BOOLEAN:
            seen = value != 0
            plain = seen
        else:
            seen = value > -3.0e4
            plain = value == 0
        some = tl.max(tl.max((seen & inside).to(tl.int32), 1), 0)
        # Rows beyond the end hide nothing; keys beyond it make a tile partial, so that its bounds are looked at.
        whole = tl.min(tl.min(((plain | (live == 0)) & (key < keys)).to(tl.int32), 1), 0)
        kinds = tl.where(index == j, some + some * whole, kinds)
    place = (b * tl.num_programs(0) + i) * key_tiles
    tl.store(kinds_out + place + index, kinds.to(tl.int8), mask=index < key_tiles)
    list_tiles(kinds, index, columns + place + (b * tl.num_programs(0) + i) * 3)


@jit
def list_tiles(kinds: Any, index: Any, to: Any) -> None:
    """Write how many tiles are whole, how many are looked at, and which: whole ones first."""
    whole = (kinds == 2).to(tl.int32)
    partial = (kinds == 1).to(tl.int32)
    count = tl.sum(whole, 0)
    place = tl.where(kinds == 2, tl.cumsum(whole, 0) - 1, count + tl.cumsum(partial, 0) - 1)
    tl.store(to, count)
    tl.store(to + 1, count + tl.sum(partial, 0))
    tl.store(to + 2 + place, index, mask=kinds > 0)


@torch.library.custom_op("turbo_hydra::prefix_blocks", mutates_args=())
def prefix_blocks(mask: torch.Tensor, group: int, width: int, element_size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Operator: kinds and columns of `MaskBlocks`. It takes no query, so that layers have it in common.

    Parameters
    ----------
    mask : Tensor
        [B, 1, Q, K].
    group : int
        Query heads that share a key/value head.
    width, element_size : int
        Elements of a head, and bytes of each.
    """
    batch, _, queries, keys = mask.shape
    tokens, block_keys = _tiles(group, width, element_size, mask.device)
    kinds, columns = _empty_blocks(mask, group, width, element_size)
    _, rows, key_tiles = kinds.shape
    with on(mask.device):
        _blocks[(rows, batch)](
            mask, kinds, columns, queries, keys, key_tiles, mask.stride(0), mask.stride(2), mask.stride(3),
            TOKENS=tokens, BLOCK_T=power_of_two(tokens), BLOCK_N=block_keys, BLOCK_J=power_of_two(key_tiles),
            BOOLEAN=mask.dtype == torch.bool, **launch("prefix_attention", "blocks", "default", mask.device),
        )  # fmt: skip
    return kinds, columns


@prefix_blocks.register_fake
def _empty_blocks(mask: torch.Tensor, group: int, width: int, element_size: int) -> tuple[torch.Tensor, torch.Tensor]:
    batch, _, queries, keys = mask.shape
    tokens, block_keys = _tiles(group, width, element_size, mask.device)
    rows, key_tiles = cdiv(queries, tokens), cdiv(keys, block_keys)
    return (
        torch.empty((batch, rows, key_tiles), dtype=torch.int8, device=mask.device),
        torch.empty((batch, rows, key_tiles + 3), dtype=torch.int32, device=mask.device),
    )


@jit
def _backward_lists(
    kinds: Any,
    wanted: Any,
    columns: Any,
    rows: Any,
    key_heads: Any,
    row_tiles: Any,
    key_tiles: Any,
    wide_tiles: Any,
    RATIO: tl.constexpr,
    BLOCK_I: tl.constexpr,
    BLOCK_J: tl.constexpr,
) -> None:
    """Lists for the backward: key tiles of a row tile, row tiles of a key tile; key tiles are RATIO times as wide.

    `wanted` says of each row tile whether its gradients are all zero (0: looked at by nobody), or whether a query that
    attends to nothing has one (2: it attends to all keys alike, so no key may be left out).
    """
    p = tl.program_id(0)
    z = tl.program_id(1).to(tl.int64)
    i = tl.arange(0, BLOCK_I)
    j = tl.arange(0, BLOCK_J)
    if p < row_tiles:
        kind = _wide_kind(kinds + (z // key_heads * row_tiles + p) * key_tiles, j, key_tiles, j < wide_tiles, RATIO)
        want = tl.load(wanted + z * row_tiles + p).to(tl.int32)
        kind = tl.where(want == 0, 0, tl.where(want == 2, tl.maximum(kind, 1), kind))
        list_tiles(tl.where(j < wide_tiles, kind, 0), j, columns + (z * row_tiles + p) * (wide_tiles + 3))
    else:
        q = p - row_tiles
        column = _wide_kind(kinds + (z // key_heads * row_tiles + i) * key_tiles, q, key_tiles, i < row_tiles, RATIO)
        wants = tl.load(wanted + z * row_tiles + i, mask=i < row_tiles, other=0).to(tl.int32)
        active = (((column > 0) & (wants == 1)) | (wants == 2)).to(tl.int32)
        to = rows + (z * wide_tiles + q) * (row_tiles + 2)
        tl.store(to, tl.sum(active, 0))
        tl.store(to + 1 + tl.cumsum(active, 0) - 1, i, mask=active == 1)


@jit
def _wide_kind(kinds: Any, wide: Any, key_tiles: Any, inside: Any, RATIO: tl.constexpr) -> Any:
    """Kind of RATIO neighbouring key tiles taken as one."""
    first = tl.load(kinds + wide * RATIO, mask=inside, other=0).to(tl.int32)
    some = (first > 0).to(tl.int32)
    whole = (first == 2).to(tl.int32)
    for c in tl.static_range(1, RATIO):
        column = wide * RATIO + c
        kind = tl.load(kinds + column, mask=inside & (column < key_tiles), other=0).to(tl.int32)
        some = tl.maximum(some, (kind > 0).to(tl.int32))
        whole = tl.minimum(whole, (kind == 2).to(tl.int32))
    return some + some * whole


def backward_lists(kinds: torch.Tensor, wanted: torch.Tensor, ratio: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Tiles that the backward looks at.

    Parameters
    ----------
    kinds : Tensor
        Of `MaskBlocks`.
    wanted : Tensor
        int8 [B * G, Q tiles].
    ratio : int
        How many key tiles of the forward make one of the backward.

    Returns
    -------
    columns : Tensor
        int32 [B * G, Q tiles, wide K tiles + 3], as in `MaskBlocks`.
    rows : Tensor
        int32 [B * G, wide K tiles, Q tiles + 2]: how many row tiles a key tile has, and which.
    """
    batch, row_tiles, key_tiles = kinds.shape
    wide_tiles, heads = cdiv(key_tiles, ratio), wanted.shape[0]
    columns = torch.empty((heads, row_tiles, wide_tiles + 3), dtype=torch.int32, device=kinds.device)
    rows = torch.empty((heads, wide_tiles, row_tiles + 2), dtype=torch.int32, device=kinds.device)
    with on(kinds.device):
        _backward_lists[(row_tiles + wide_tiles, heads)](
            kinds, wanted, columns, rows, heads // batch, row_tiles, key_tiles, wide_tiles, RATIO=ratio,
            BLOCK_I=power_of_two(row_tiles), BLOCK_J=power_of_two(wide_tiles),
            **launch("prefix_attention", "lists", "default", kinds.device),
        )  # fmt: skip
    return columns, rows
