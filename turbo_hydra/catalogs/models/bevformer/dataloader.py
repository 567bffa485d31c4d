# SPDX-License-Identifier: Apache-2.0
"""Batches that are pinned in the background, though they lie in mmcv's containers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from turbo_hydra import fallback
from turbo_hydra.catalogs.models.bevformer.options import Data

Function = Callable[..., Any]


def build_dataloader(original: Function, options: Data) -> Function:
    """Factory for the plugin's `build_dataloader`, which says `pin_memory=False` itself.

    Workers stay from epoch to epoch as upstream has it. torch pins what has a `pin_memory` method; mmcv's containers
    have none, so they are exchanged, in the worker, for some that do.
    """

    def build_dataloader(
        dataset: Any,
        samples_per_gpu: int,
        workers_per_gpu: int,
        num_gpus: int = 1,
        dist: bool = True,
        shuffle: bool = True,
        seed: int | None = None,
        shuffler_sampler: Any = None,
        nonshuffler_sampler: Any = None,
        **kwargs: Any,
    ) -> Any:
        ahead = options.prefetch_factor and workers_per_gpu > 0 and "prefetch_factor" not in kwargs
        pinned = options.pin_memory and torch.accelerator.is_available()
        if not ahead and not pinned:
            fallback("nothing that fits and is not given")
        if ahead:
            kwargs["prefetch_factor"] = options.prefetch_factor
        loader = original(
            dataset,
            samples_per_gpu,
            workers_per_gpu,
            num_gpus,
            dist,
            shuffle,
            seed,
            shuffler_sampler,
            nonshuffler_sampler,
            **kwargs,
        )
        if pinned:
            from turbo_hydra.catalogs.mmcv.pinned import collated

            loader.pin_memory = True
            loader.collate_fn = partial(collated, loader.collate_fn)
        return loader

    return build_dataloader
