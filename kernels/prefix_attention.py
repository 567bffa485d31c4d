# SPDX-License-Identifier: Apache-2.0
"""Attention under the masks of prefix language models: tiles that the mask hides are not computed.

Query heads that share a key/value head are rows of one tile. Any mask will do: what is skipped is read from the mask.
"""

from __future__ import annotations

from math import prod
from typing import Any

import torch
from torch.utils.flop_counter import register_flop_formula

from . import language
from . import prefix_attention_hopper as hopper
from . import prefix_attention_kernels as kernels
from .configurations import launch
from .language import INTERPRETED, accumulates, accumulator, cdiv, on, power_of_two
from .prefix_mask import MaskBlocks, backward_lists, head_class, prefix_blocks, tiles

__all__ = ["MaskBlocks", "mask_blocks", "prefix_attention", "prefix_attention_plain", "tiles", "unfit"]

# Bytes of probabilities that the backward writes at a time; a single key/value head may need more.
PART = 1 << 30


def prefix_attention_plain(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, scale: float
) -> torch.Tensor:
    """The library's path, with the softmax in float32; the reference where the tensors are float64."""
    group = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(group, 1), value.repeat_interleave(group, 1)
    scores = query @ key.transpose(2, 3) * scale
    if mask is not None and mask.dtype == torch.bool:
        mask = torch.where(mask, 0.0, -2.3819763e38)
    if mask is not None:
        scores = scores + mask
    weights = scores.softmax(-1, dtype=accumulates(query.dtype)).to(query.dtype)
    return weights @ value


def unfit(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, scale: float
) -> str | None:
    """Why the kernels do not take these tensors, None where they do."""
    if query.dim() != 4 or key.dim() != 4 or key.shape != value.shape:
        return "query, key and value are not [B, H, Q, D], [B, G, K, D] and [B, G, K, D]"
    if query.shape[0] != key.shape[0] or query.shape[3] != key.shape[3] or query.shape[1] % max(1, key.shape[1]):
        return "query and key differ in batch or head size, or their heads do not divide"
    if not 1 <= query.shape[3] <= 256 or query.shape[1] > 16 * key.shape[1]:
        return "heads are larger than 256, or more than 16 share a key/value head"
    if not query.dtype == key.dtype == value.dtype or (query.dtype == torch.float64 and not INTERPRETED):
        return "query, key and value differ in dtype or are float64"
    if query.numel() == 0 or key.numel() == 0:
        return "nothing to attend to"
    if not scale > 0.0:
        return "the scale is not positive"
    if mask is None:
        return language.unfit(query, key, value)
    sizes = (query.shape[0], 1, query.shape[2], key.shape[2])
    if mask.dim() != 4 or any(m not in (1, s) for m, s in zip(mask.shape, sizes, strict=True)):
        return "the mask is not [B, 1, Q, K]"
    if mask.requires_grad or (mask.dtype != torch.bool and not mask.dtype.is_floating_point):
        return "the mask needs a gradient, or is neither boolean nor additive"
    return language.unfit(query, key, value) or (None if mask.device == query.device else "the mask is elsewhere")


def mask_blocks(mask: torch.Tensor | None, query: torch.Tensor, key: torch.Tensor) -> MaskBlocks:
    """Derive from a mask what `prefix_attention` skips; to be kept as long as the mask is, for all layers of a step.

    Parameters
    ----------
    mask : Tensor or None
        As `prefix_attention` takes it.
    query, key : Tensor
        [B, H, Q, D] and [B, G, K, D]; only shapes, dtype and device matter.
    """
    if mask is None:
        mask = torch.ones((1, 1, 1, 1), dtype=torch.bool, device=query.device)
    mask = mask.detach().expand(query.shape[0], 1, query.shape[2], key.shape[2])
    group = query.shape[1] // key.shape[1]
    return MaskBlocks(mask, *prefix_blocks(mask, group, query.shape[3], query.element_size()))


def prefix_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | MaskBlocks | None = None,
    scale: float | None = None,
) -> torch.Tensor:
    """softmax(query @ key.T * scale + mask) @ value; neither pass keeps anything of the size of the scores.

    Parameters
    ----------
    query : Tensor
        [B, H, Q, D], D at most 256; bf16, float16, float32. Any strides; elements of a head side by side cost no copy.
    key, value : Tensor
        [B, G, K, D], H a multiple of G of at most 16 times: query heads h * H / G to (h + 1) * H / G - 1 use head h.
    mask : Tensor, MaskBlocks or None
        [B, 1, Q, K] or broadcast to it: boolean (True: may attend) or additive, where -30,000 or less hides. A query
        that may attend to nothing gets the mean of all values, as a softmax of equal scores does. What `mask_blocks`
        gives saves deriving the tiles again.
    scale : float, optional
        D ** -0.5 where none is given.

    Returns
    -------
    Tensor
        [B, H, Q, D], stored as [B, Q, H, D]. The library's path where `unfit` gives a reason.
    """
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    dense = mask.mask if isinstance(mask, MaskBlocks) else mask
    if unfit(query, key, value, dense, scale) is not None:
        return prefix_attention_plain(query, key, value, dense, scale)
    blocks = mask if isinstance(mask, MaskBlocks) else mask_blocks(dense, query, key)
    out, _ = attend(query, key, value, *blocks, scale)
    result: torch.Tensor = out
    return result


def _sizes(query: torch.Tensor, key: torch.Tensor, kernel: str) -> dict[str, Any]:
    """Constants of a kernel's launch."""
    shape_class = head_class(query.shape[3], query.element_size())
    block_m = launch("prefix_attention", "tiles", shape_class, query.device)["BLOCK_M"]
    group = query.shape[1] // key.shape[1]
    return {
        "KEY_HEADS": key.shape[1], "GROUP": group, "TOKENS": block_m // group, "BLOCK_M": block_m, "D": query.shape[3],
        "BLOCK_D": max(16, power_of_two(query.shape[3])), "ACC": accumulator(query.dtype),
        **launch("prefix_attention", kernel, shape_class, query.device),
    }  # fmt: skip


def _dense(*tensors: torch.Tensor) -> list[torch.Tensor]:
    """The tensors with the elements of a head side by side."""
    return [tensor if tensor.stride(-1) == 1 else tensor.contiguous() for tensor in tensors]


def _strides(tensor: torch.Tensor) -> tuple[int, int, int]:
    """Strides of batch, head and token."""
    return tensor.stride(0), tensor.stride(1), tensor.stride(2)


def _mask_strides(mask: torch.Tensor) -> tuple[int, int, int]:
    return mask.stride(0), mask.stride(2), mask.stride(3)


def _empty_out(query: torch.Tensor) -> torch.Tensor:
    batch, heads, queries, width = query.shape
    return query.new_empty((batch, queries, heads, width)).transpose(1, 2)


def _empty_sums(query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    """A number for each row of each tile: [B * G, Q tiles, BLOCK_M]."""
    tokens, _ = tiles(query, key)
    block_m = launch("prefix_attention", "tiles", head_class(query.shape[3], query.element_size()), query.device)
    shape = (query.shape[0] * key.shape[1], cdiv(query.shape[2], tokens), block_m["BLOCK_M"])
    return query.new_empty(shape, dtype=accumulates(query.dtype))


@torch.library.custom_op("turbo_hydra::prefix_attention", mutates_args=())
def attend(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor, kinds: torch.Tensor,
    columns: torch.Tensor, scale: float,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """Operator of the forward pass: the result, and the logarithms of the rows' sums."""
    query, key, value = _dense(query, key, value)
    out, lse = _empty_out(query), _empty_sums(query, key)
    _, block_keys = tiles(query, key)
    expected = query.shape[0], lse.shape[1], cdiv(key.shape[2], block_keys)
    if kinds.shape != expected:
        raise ValueError(
            f"the mask's blocks were derived for other tensors: {tuple(kinds.shape)} tiles, not {expected}"
        )
    sizes = _sizes(query, key, "forward")
    shape = query.shape[2], key.shape[2], kinds.shape[2]
    means = value.mean(2, dtype=lse.dtype)
    strides = (*_strides(out), *_mask_strides(mask))
    with on(query.device):
        if hopper.fits(query, key, value):
            del sizes["ACC"], sizes["BLOCK_D"], sizes["num_stages"]
            hopper.forward[(lse.shape[1], lse.shape[0])](
                query, hopper.descriptor(key, block_keys), hopper.descriptor(value, block_keys), mask, columns, means,
                out, lse, *shape, *_strides(query), *strides, BLOCK_N=block_keys, BOOLEAN=mask.dtype == torch.bool,
                SCALE=scale, **sizes,
            )  # fmt: skip
        else:
            kernels.forward[(lse.shape[1], lse.shape[0])](
                query, key, value, mask, columns, means, out, lse, *shape, *_strides(query), *_strides(key),
                *_strides(value), *strides, BLOCK_N=block_keys, BOOLEAN=mask.dtype == torch.bool, SCALE=scale, **sizes,
            )  # fmt: skip
    return out, lse


@attend.register_fake
def _(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor, kinds: torch.Tensor,
    columns: torch.Tensor, scale: float,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    return _empty_out(query), _empty_sums(query, key)


@register_flop_formula(torch.ops.turbo_hydra.prefix_attention)
def _(query: torch.Size, key: torch.Size, *_: Any, **__: Any) -> int:
    # Two products, whatever the mask hides of them: as torch counts its own attention.
    return 2 * 2 * prod(query) * key[2]


@torch.library.custom_op("turbo_hydra::prefix_attention_backward", mutates_args=())
def attend_backward(
    grad: torch.Tensor, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, out: torch.Tensor,
    lse: torch.Tensor, mask: torch.Tensor, kinds: torch.Tensor, scale: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    """Operator of the backward pass: gradients of query, key and value."""
    grad, query, key, value = _dense(grad, query, key, value)
    grads = torch.empty_like(query), torch.empty_like(key), torch.empty_like(value)
    queries, keys = query.shape[2], key.shape[2]
    heads, row_tiles, block_m = lse.shape
    narrow = tiles(query, key)[1]
    shape_class = head_class(query.shape[3], query.element_size())
    wide: int = launch("prefix_attention", "tiles", shape_class, query.device)["BLOCK_N_BACKWARD"]
    deltas, wanted = torch.empty_like(lse), lse.new_empty((heads, row_tiles), dtype=torch.int8)
    with on(query.device):
        kernels.delta[(row_tiles, heads)](
            grad, out, lse, deltas, wanted, queries, *_strides(grad), *_strides(out), **_sizes(query, key, "delta")
        )
        columns, rows = backward_lists(kinds, wanted, wide // narrow)
        key_tiles = rows.shape[1]
        part = max(1, min(heads, PART // (row_tiles * block_m * key_tiles * wide * query.element_size())))
        scores = query.new_empty((part, row_tiles * block_m, key_tiles * wide))
        for first in range(0, heads, part):
            count = min(part, heads - first)
            shape = first, queries, keys, key_tiles
            kernels.probabilities[(row_tiles, count)](
                query, key, mask, columns, lse, scores, *shape, *_strides(query), *_strides(key), *_mask_strides(mask),
                BLOCK_N=wide, BOOLEAN=mask.dtype == torch.bool, SCALE=scale, **_sizes(query, key, "probabilities"),
            )  # fmt: skip
            kernels.key_product[(key_tiles, count)](
                scores, grad, rows, grads[2], *shape, row_tiles, *_strides(grad), *_strides(grads[2]),
                BLOCK_N=wide, **_sizes(query, key, "key_product"),
            )  # fmt: skip
            kernels.scores[(row_tiles, count)](
                grad, value, columns, deltas, scores, *shape, *_strides(grad), *_strides(value),
                BLOCK_N=wide, SCALE=scale, **_sizes(query, key, "scores"),
            )  # fmt: skip
            kernels.row_product[(row_tiles, count)](
                scores, key, columns, grads[0], *shape, *_strides(key), *_strides(grads[0]),
                BLOCK_N=wide, **_sizes(query, key, "row_product"),
            )  # fmt: skip
            kernels.key_product[(key_tiles, count)](
                scores, query, rows, grads[1], *shape, row_tiles, *_strides(query), *_strides(grads[1]),
                BLOCK_N=wide, **_sizes(query, key, "key_product"),
            )  # fmt: skip
    return grads


@attend_backward.register_fake
def _(
    grad: torch.Tensor, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, out: torch.Tensor,
    lse: torch.Tensor, mask: torch.Tensor, kinds: torch.Tensor, scale: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    query, key, value = _dense(query, key, value)
    return torch.empty_like(query), torch.empty_like(key), torch.empty_like(value)


@register_flop_formula(torch.ops.turbo_hydra.prefix_attention_backward)
def _(grad: torch.Size, query: torch.Size, key: torch.Size, *_: Any, **__: Any) -> int:
    # Five products: the scores again, the gradient of their softmax, and each gradient.
    return 5 * 2 * prod(query) * key[2]


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, torch.Tensor]) -> None:
    query, key, value, mask, kinds, _, ctx.scale = inputs
    ctx.save_for_backward(query, key, value, *output, mask, kinds)
    ctx.set_materialize_grads(False)


def _differentiate(ctx: Any, grad: torch.Tensor | None, _: Any) -> tuple[torch.Tensor | None, ...]:
    if grad is None:
        return (None,) * 7
    query, key, value, out, lse, mask, kinds = ctx.saved_tensors
    grads = attend_backward(grad, query, key, value, out, lse, mask, kinds, ctx.scale)
    return (*grads, None, None, None, None)


attend.register_autograd(_differentiate, setup_context=_save)
