# SPDX-License-Identifier: Apache-2.0
"""Batches come from the loader's workers in shared memory instead of through a pipe."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from turbo_hydra import fallback

Collate = Callable[[Any], Any]

# Batches of one worker that may lie in shared memory at a time: two that are fetched ahead, and one that is being read.
_AT_A_TIME = 3
_SHARED = "/dev/shm"


def collate(original: Collate, options: None) -> Collate:
    """Factory for `_collate_fn`, which stacks samples to NumPy arrays in a worker.

    torch moves its own tensors between processes by name, and NumPy's arrays byte by byte: 58 MB a batch of 32, which
    the training process reads while the device waits. It makes tensors of them anyway, without a copy.
    """

    def _collate_fn(items: Any) -> Any:
        batch = original(items)
        worker = torch.utils.data.get_worker_info()
        if worker is None:
            fallback("no worker")
            return batch
        leaves, structure = tree_flatten(batch)
        # An observation has fields that are None where the model has no use for them.
        arrays = [leaf for leaf in leaves if leaf is not None]
        if not all(isinstance(leaf, np.ndarray) and leaf.dtype.kind in "fiub" for leaf in arrays):
            fallback("something that is no array of numbers")
            return batch
        if sum(leaf.nbytes for leaf in arrays) * _AT_A_TIME * worker.num_workers > _free():
            fallback("too little shared memory")
            return batch
        return tree_unflatten([None if leaf is None else torch.as_tensor(leaf) for leaf in leaves], structure)

    return _collate_fn


def _free() -> int:
    """Bytes that are free in shared memory; containers often have little."""
    try:
        found = os.statvfs(_SHARED)
    except OSError:
        return 0
    return found.f_bavail * found.f_frsize
