# SPDX-License-Identifier: Apache-2.0
"""Activations are kept, not computed again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from turbo_hydra import fallback
from turbo_hydra.catalogs.models.tiny_vla.options import CheckpointOff


def checkpointed(original: Callable[..., Any], options: CheckpointOff) -> Callable[..., Any]:
    """Factory for `tiny_vla.layers.checkpointed`, the call of a layer under activation checkpointing."""
    keep_above = options.keep_above

    def checkpointed(layer: torch.nn.Module, *args: Any) -> Any:
        if keep_above and args[0].shape[:-1].numel() > keep_above:
            fallback("more tokens than keep_above")
            return original(layer, *args)
        return layer(*args)

    return checkpointed
