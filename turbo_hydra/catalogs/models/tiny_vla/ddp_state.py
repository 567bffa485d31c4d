# SPDX-License-Identifier: Apache-2.0
"""DistributedDataParallel told what the script leaves it to find out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from turbo_hydra import fallback
from turbo_hydra.catalogs.models.tiny_vla.options import DdpState


def init(original: Callable[..., None], options: DdpState) -> Callable[..., None]:
    """Factory for `DistributedDataParallel.__init__`."""
    settings: dict[str, Any] = {
        "gradient_as_bucket_view": options.bucket_view,
        "broadcast_buffers": options.broadcast_buffers,
    }
    if options.static_graph:
        settings |= {"static_graph": True, "find_unused_parameters": False}

    def __init__(self: Any, module: torch.nn.Module, *args: Any, **kwargs: Any) -> None:
        reason = _unfit(module, args, kwargs, settings)
        if reason is not None:
            fallback(reason)
            original(self, module, *args, **kwargs)
            return
        original(self, module, *args, **{**kwargs, **settings})

    return __init__


def _unfit(
    module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], settings: dict[str, Any]
) -> str | None:
    """Why the settings are not for this model; None if they are."""
    if type(module).__module__.partition(".")[0] != "tiny_vla":
        return "another model"
    if len(args) > 3:
        return "settings given by position"  # module, device_ids, output_device, dim; then broadcast_buffers
    if any(key in kwargs and key != "find_unused_parameters" for key in settings):
        return "the script chose"
    return None
