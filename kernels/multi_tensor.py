# SPDX-License-Identifier: Apache-2.0
"""Thousands of tensors in one launch: their addresses in one tensor on the device, and which program takes which part.

Parts depend on the tensors' sizes alone and are kept. Addresses are sent at each call in which they changed, from
pinned memory, so that no call waits for the device.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch

from .language import tl

TYPES = {torch.float32: "float32", torch.bfloat16: "bfloat16", torch.float16: "float16", torch.float64: "float64"}
Tensors = Sequence[torch.Tensor]


class Parts(NamedTuple):
    """What each program works on."""

    tensors: torch.Tensor  # int32 [programs], the number of the tensor
    starts: torch.Tensor  # int64 [programs], its first element
    sizes: torch.Tensor  # int64 [tensors], elements of each
    programs: int


def unfit(*lists: Tensors) -> str | None:
    """Why lists of tensors that go together cannot be taken in one launch, None where they can."""
    shapes = [tensor.shape for tensor in lists[0]]
    for tensors in lists:
        if [tensor.shape for tensor in tensors] != shapes:
            return "lists that differ in length or in their tensors' shapes"
        if any(tensor.dtype not in TYPES for tensor in tensors):  # as a set, torch 2.11's Dynamo cannot compare them
            return "a tensor that is not floating"
        if {tensor.get_device() for tensor in tensors} != {lists[0][0].get_device()}:
            return "tensors on different devices"
        if any(tensor.layout != torch.strided or not tensor.is_contiguous() for tensor in tensors):
            return "a tensor that is not contiguous"
    return None


def by_dtype(*lists: Tensors) -> list[tuple[tuple[torch.dtype, ...], list[Tensors]]]:
    """The lists in parts of which each list has one dtype: mostly one part, the lists as they are."""
    kinds = [{tensor.dtype for tensor in tensors} for tensors in lists]
    if all(len(kind) == 1 for kind in kinds):
        return [(tuple(kind.pop() for kind in kinds), list(lists))]
    found: dict[tuple[torch.dtype, ...], list[tuple[torch.Tensor, ...]]] = {}
    for together in zip(*lists, strict=True):
        found.setdefault(tuple(tensor.dtype for tensor in together), []).append(together)
    return [(dtypes, list(zip(*group, strict=True))) for dtypes, group in found.items()]


def sizes(tensors: Tensors) -> tuple[int, ...]:
    """Elements of each."""
    return tuple(tensor.numel() for tensor in tensors)


def element(dtype: torch.dtype) -> Any:
    """Triton's name of a dtype."""
    return getattr(tl, TYPES[dtype])


@lru_cache(maxsize=32)
def parts(sizes: tuple[int, ...], chunk: int, device: torch.device) -> Parts:
    """Parts of at most `chunk` elements; one program each."""
    counts = torch.tensor([-(-size // chunk) for size in sizes], dtype=torch.int64)
    tensors = torch.repeat_interleave(torch.arange(len(sizes)), counts)
    first = torch.cumsum(counts, 0) - counts
    starts = (torch.arange(int(counts.sum())) - first[tensors]) * chunk
    return Parts(
        tensors.to(torch.int32).to(device),
        starts.to(device),
        torch.tensor(sizes, dtype=torch.int64).to(device),
        len(tensors),
    )


class Addresses:
    """Tensors' addresses on the device, sent anew only when they changed."""

    def __init__(self) -> None:
        self._last: dict[tuple[Any, ...], tuple[list[int], torch.Tensor, bool]] = {}

    def get(self, key: tuple[Any, ...], lists: Sequence[Tensors]) -> tuple[torch.Tensor, bool]:
        """int64 [lists * tensors], and whether each can be read 16 bytes at a time.

        Parameters
        ----------
        key : tuple
            What tells this caller's lists from others.
        lists : sequence of lists of Tensor
            Of one length; all on one device.
        """
        device = lists[0][0].device
        numbers = [tensor.data_ptr() for tensors in lists for tensor in tensors]
        key = (*key, device)
        last = self._last.get(key)
        if last is not None and last[0] == numbers:
            return last[1], last[2]
        sent = torch.tensor(numbers, dtype=torch.int64)
        if device.type == "cuda":
            sent = sent.pin_memory().to(device, non_blocking=True)
        aligned = all(number % 16 == 0 for number in numbers)
        self._last[key] = (numbers, sent, aligned)
        return sent, aligned


ADDRESSES = Addresses()
