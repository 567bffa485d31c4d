# SPDX-License-Identifier: Apache-2.0
"""Cases of `benchmarks.kernels` that are about products of matrices, or about reading here and there.

PI0.5's attention: 32 samples of 978 tokens, 968 of them prefix, or 984; 8 query heads over 1 of size 256. BEVFormer's
three deformable attentions at its base size: six cameras with four maps, the bird's-eye view's 200 by 200 cells over
the present and the last one, and 900 queries of the decoder. A head of Gemma's vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import torch
from torch.nn import functional

from benchmarks.kernel_cases import Case, leaves, stem

_HEADS, _SIZE, _BATCH = 8, 256, 32
_PREFIX_TUNES = tuple(
    ("prefix_attention", kernel, "default") for kernel in ("probabilities", "scores", "key_product", "row_product")
)
# Height and width of each map, queries, points and batch.
_DEFORMABLE: dict[str, tuple[tuple[tuple[int, int], ...], int, int, int]] = {
    "6 cameras, 4 maps, 10,000 queries, 8 points": (((116, 200), (58, 100), (29, 50), (15, 25)), 10000, 8, 6),
    "2 bird's-eye views of 200 x 200, 40,000 queries, 4 points": (((200, 200),), 40000, 4, 2),
    "1 bird's-eye view of 200 x 200, 900 queries, 4 points": (((200, 200),), 900, 4, 1),
}


def prefix_mask(length: int, cameras: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Additive mask [32, 1, length, length], and which tokens are there: [32, length].

    With two of three cameras, as LIBERO has, 256 image tokens and half of the prompt's 200 are padding.
    """
    real = torch.ones(_BATCH, length, dtype=torch.bool, device="cuda")
    if cameras == 2:
        real[:, 512:768] = False
        for sample in range(_BATCH):
            real[sample, 768 + 60 + 7 * sample % 80 : length - 10] = False
    block = torch.zeros(length, dtype=torch.int64, device="cuda")
    block[length - 10] = 1
    block = block.cumsum(0)
    seen = (block[None, None] <= block[None, :, None]) & real[:, None, :] & real[:, :, None]
    return torch.where(seen[:, None], 0.0, -2.3819763e38), real


@cache
def compiled_flex_attention() -> Callable[..., torch.Tensor]:
    """PyTorch's attention that leaves out blocks."""
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention, dynamic=False)


@cache
def flex_blocks(length: int, cameras: int) -> Any:
    """The blocks that the mask of `prefix_mask` leaves, as flex attention wants them."""
    from torch.nn.attention.flex_attention import create_block_mask

    _, real = prefix_mask(length, cameras)
    prefix = length - 10

    def seen(sample: Any, head: Any, query: Any, key: Any) -> Any:
        return real[sample, query] & real[sample, key] & ((key < prefix) | (query >= prefix))

    return create_block_mask(seen, _BATCH, None, length, length, device="cuda")


def prefix_attention() -> list[Case]:
    """A mask's tiles are derived once a step, for 18 layers: not counted. Padding gives nothing, as in the model."""
    module = stem("prefix_attention")
    cases = []
    for length, cameras in ((984, 3), (978, 3), (978, 2)):

        def inputs(length: int = length, cameras: int = cameras) -> list[torch.Tensor]:
            query, key, value = leaves(*((_BATCH, heads, length, _SIZE) for heads in (_HEADS, 1, 1)))
            mask, real = prefix_mask(length, cameras)
            blocks = module.mask_blocks(mask, query, key)
            return [query, key, value, *blocks, *([real[:, None, :, None].to(query.dtype)] if cameras == 2 else [])]

        def kernel(
            query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor, kinds: torch.Tensor,
            columns: torch.Tensor, real: torch.Tensor | None = None,
        ) -> torch.Tensor:  # fmt: skip
            out: torch.Tensor = module.prefix_attention(query, key, value, module.MaskBlocks(mask, kinds, columns))
            return out if real is None else out * real

        def eager(
            query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor, kinds: torch.Tensor,
            columns: torch.Tensor, real: torch.Tensor | None = None,
        ) -> torch.Tensor:  # fmt: skip
            out: torch.Tensor = module.prefix_attention_plain(query, key, value, mask, _SIZE**-0.5)
            return out if real is None else out * real

        def sdpa(
            query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor, kinds: torch.Tensor,
            columns: torch.Tensor, real: torch.Tensor | None = None,
        ) -> torch.Tensor:  # fmt: skip
            key, value = (tensor.expand(-1, _HEADS, -1, -1) for tensor in (key, value))
            out = functional.scaled_dot_product_attention(query, key, value, mask.to(query.dtype))
            return out if real is None else out * real

        def flex(
            query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor, kinds: torch.Tensor,
            columns: torch.Tensor, real: torch.Tensor | None = None, *, length: int = length, cameras: int = cameras,
        ) -> torch.Tensor:  # fmt: skip
            blocks = flex_blocks(length, cameras)
            out = compiled_flex_attention()(query, key, value, block_mask=blocks, enable_gqa=True)
            return out if real is None else out * real

        tokens = 2 * _BATCH * length * _SIZE
        work = 2 * _BATCH * _HEADS * length**2 * _SIZE
        cases.append(
            Case(
                "prefix_attention", f"[32, 8 over 1, {length}, 256] bf16, {cameras} cameras", inputs, kernel, eager,
                (2 * _HEADS + 2) * tokens, (4 * _HEADS + 4) * tokens, others={"sdpa": sdpa, "flex": flex},
                forward_work=2 * work, backward_work=5 * work, tunes=_PREFIX_TUNES if length == 984 else (),
            )
        )  # fmt: skip

    return cases


def msda() -> list[Case]:
    """Locations around a grid, a few cells away, as offsets that are learnt are."""
    module = stem("msda")
    cases = []
    for shape, (maps, queries, points, batch) in _DEFORMABLE.items():
        cells = sum(height * across for height, across in maps)

        def inputs(
            maps: tuple[tuple[int, int], ...] = maps, queries: int = queries, points: int = points, batch: int = batch,
            cells: int = cells,
        ) -> list[torch.Tensor]:  # fmt: skip
            sizes = torch.tensor(maps, device="cuda")
            starts = sizes.prod(1).cumsum(0) - sizes.prod(1)
            side = int(queries**0.5)
            number = torch.arange(queries, device="cuda")
            grid = torch.stack([(number % side + 0.5) / side, (number // side + 0.5) * side / queries], -1)
            away = torch.randn(batch, queries, 8, len(maps), points, 2, device="cuda") * 4 / sizes.flip(1)[:, None]
            weights = torch.rand(batch, queries, 8, len(maps), points, device="cuda").requires_grad_()
            (value,) = leaves((batch, cells, 8, 32), dtype=torch.float32)
            return [value, sizes, starts, (grid[None, :, None, None, None] + away).requires_grad_(), weights]

        def eager(
            value: torch.Tensor, sizes: torch.Tensor, starts: torch.Tensor, locations: torch.Tensor,
            weights: torch.Tensor, maps: tuple[tuple[int, int], ...] = maps,
        ) -> torch.Tensor:  # fmt: skip
            # From the host: the library's path waits for the device where it reads them there.
            known = torch.tensor(maps)
            out: torch.Tensor = module.msda_plain(
                value, known, known.prod(1).cumsum(0) - known.prod(1), locations, weights
            )
            return out

        read = batch * queries * 8 * len(maps) * points * 3
        values, out = batch * cells * 256, batch * queries * 256
        for note, deterministic in (("", False), (", the same in each run", True)):
            cases.append(
                Case(
                    f"msda{note}", f"{shape}, float32", inputs, partial(module.msda, deterministic=deterministic),
                    eager, 4 * (values + read + out), 4 * (2 * values + 2 * read + out), compiled=False,
                    tunes=(("msda", "forward", "default"), ("msda", "backward", "default"))
                    if batch == 6 and not deterministic else (),
                )
            )  # fmt: skip
    return cases


def deformable_convolution() -> list[Case]:
    """What the taps of BEVFormer base's deformable convolutions read, a few tenths of a cell from where they stand."""
    module = stem("msda")
    cases = []
    for height, across, channels in ((58, 100, 256), (29, 50, 512)):

        def inputs(height: int = height, across: int = across, channels: int = channels) -> list[torch.Tensor]:
            size = torch.tensor([[height, across]], device="cuda")
            y, x = torch.meshgrid(
                torch.arange(height, device="cuda"), torch.arange(across, device="cuda"), indexing="ij"
            )
            taps = torch.arange(9, device="cuda")
            at = torch.stack((x[..., None] + taps % 3 - 1, y[..., None] + taps // 3 - 1), -1).flatten(0, 2)
            away = torch.randn(6, len(at), 1, 1, 1, 2, device="cuda") * 0.3
            mask = torch.rand(6, len(at), 1, 1, 1, device="cuda").requires_grad_()
            (value,) = leaves((6, height * across, 1, channels), dtype=torch.float32)
            return [value, size, size[:, 0] * 0, (at[:, None, None, None] + away).requires_grad_(), mask]

        def eager(
            value: torch.Tensor, size: torch.Tensor, start: torch.Tensor, locations: torch.Tensor, mask: torch.Tensor,
            known: tuple[int, int] = (height, across),
        ) -> torch.Tensor:  # fmt: skip
            out: torch.Tensor = module.msda_plain(value, torch.tensor([known]), start, locations, mask, in_cells=True)
            return out

        points = 6 * height * across * 9
        values, out = 6 * height * across * channels, points * channels
        width = f"width_{channels}"
        cases.append(
            Case(
                "msda, deformable convolution", f"6 x {height} x {across} x {channels}, 9 taps, float32", inputs,
                partial(module.msda, in_cells=True), eager, 4 * (values + 3 * points + out),
                4 * (2 * values + 6 * points + out), compiled=False,
                tunes=(("msda", "forward", width), ("msda", "backward", width)),
            )
        )  # fmt: skip
    return cases


def linear_cross_entropy() -> list[Case]:
    """Eight thousand tokens of Gemma's vocabulary."""
    module = stem("linear_cross_entropy")
    rows, width, vocabulary = 8192, 2048, 257152

    def inputs() -> list[torch.Tensor]:
        hidden, weight = leaves((rows, width), (vocabulary, width))
        target = torch.randint(0, vocabulary, (rows,), device="cuda")
        return [hidden, (weight.detach() * 0.05).requires_grad_(), target]

    sizes = 2 * width * (rows + vocabulary)
    work = 2 * rows * width * vocabulary

    def liger() -> Callable[..., Any]:
        from importlib import import_module

        apply = import_module("liger_kernel.ops.fused_linear_cross_entropy").LigerFusedLinearCrossEntropyFunction.apply
        return lambda hidden, weight, target: apply(hidden, weight, target)[0]

    return [
        Case(
            "linear_cross_entropy", f"[{rows}, {width}] x [{vocabulary}, {width}] bf16", inputs,
            module.linear_cross_entropy, module.linear_cross_entropy_plain, sizes, sizes, liger,
            forward_work=work, backward_work=2 * work, tunes=(("linear_cross_entropy", "loss", "default"),),
        )
    ]  # fmt: skip


CASES: tuple[Callable[[], list[Case]], ...] = (prefix_attention, msda, deformable_convolution, linear_cross_entropy)
