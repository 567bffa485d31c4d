# SPDX-License-Identifier: Apache-2.0
"""DistributedDataParallel told what the script leaves it to find out.

An argument that the script gives, by name or by position, stays as it is given, unless the option `override` names it.
`find_unused_parameters=True` need not be: with a static graph the search is made once, whatever that argument says.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.modules.batchnorm import _NormBase

from turbo_hydra import fallback
from turbo_hydra.catalogs.shared.options import DdpState

FLAGS = ("static_graph", "find_unused_parameters", "gradient_as_bucket_view", "broadcast_buffers")


def init(original: Callable[..., None], options: DdpState) -> Callable[..., None]:
    """Factory for `DistributedDataParallel.__init__`."""
    unknown = sorted(set(options.override) - set(FLAGS))
    if unknown:
        raise ValueError(f"override names {', '.join(unknown)}; it can name {', '.join(FLAGS)}")
    names = list(inspect.signature(original).parameters)[1:]
    wanted: dict[str, Any] = {}
    if options.static_graph:
        wanted |= {"static_graph": True, "find_unused_parameters": False}
    if options.bucket_view:
        wanted["gradient_as_bucket_view"] = True
    # Newer torch has another name for it, and warns of the old one.
    buffers = "forward_sync_buffers" if "forward_sync_buffers" in names else "broadcast_buffers"
    if not options.broadcast_buffers:
        wanted[buffers] = False
    override = {buffers if name == "broadcast_buffers" else name for name in options.override}

    def __init__(self: Any, module: torch.nn.Module, *args: Any, **kwargs: Any) -> None:
        by_position = names[1 : 1 + len(args)]
        given = {*by_position, *kwargs}
        if "broadcast_buffers" in given:
            given.add(buffers)
        settings = {
            name: value
            for name, value in wanted.items()
            if name not in given or (name in override and name not in by_position)
        }
        if buffers in settings and _has_running_statistics(module):
            del settings[buffers]
        if not settings:
            fallback("the script chose")
        original(self, module, *args, **{**kwargs, **settings})

    return __init__


def _has_running_statistics(module: torch.nn.Module) -> bool:
    """Whether training writes buffers that ranks would otherwise have in common."""
    return any(isinstance(part, _NormBase) and part.track_running_stats for part in module.modules())
