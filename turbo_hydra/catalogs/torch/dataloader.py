# SPDX-License-Identifier: Apache-2.0
"""DataLoaders that have batches ready, in memory that an accelerator copies from without waiting."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import IterableDataset

from turbo_hydra import fallback
from turbo_hydra.catalogs.torch.options import DataLoading


def init(original: Callable[..., None], options: DataLoading) -> Callable[..., None]:
    """Factory for `DataLoader.__init__`; sets what the script leaves at its default."""
    names = list(inspect.signature(original).parameters)[1:]

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        settings = {name: value for name, value in _fitting(given, options).items() if name not in given}
        if not settings:
            fallback("nothing that fits and is not given")
        original(self, *args, **{**kwargs, **settings})

    return __init__


def _fitting(given: dict[str, Any], options: DataLoading) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    if options.pin_memory and torch.accelerator.is_available():
        settings["pin_memory"] = True
    workers = given.get("num_workers", 0)
    if not isinstance(workers, int) or workers < 1:
        return settings
    if options.prefetch_factor:
        settings["prefetch_factor"] = options.prefetch_factor
    if options.persistent_workers and not _changes_between_epochs(given.get("dataset")):
        settings["persistent_workers"] = True
    return settings


def _changes_between_epochs(dataset: Any) -> bool:
    """Whether workers that stay would keep a state that new ones begin without, or miss what the script changes."""
    return isinstance(dataset, IterableDataset) or hasattr(dataset, "set_epoch")
