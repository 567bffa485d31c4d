# SPDX-License-Identifier: Apache-2.0
"""Instances of named module classes are compiled as they are made."""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import torch

from turbo_hydra import CompatibilityResult, fallback
from turbo_hydra.catalogs.torch.options import Compile

if TYPE_CHECKING:
    from turbo_hydra import CheckContext


def init(original: Callable[..., None], options: Compile) -> Callable[..., None]:
    """Factory for `torch.nn.Module.__init__`: the instance's call is compiled when it is first made, as by `compile()`.

    Subclasses of a named class are named themselves or stay as they are: their `forward` may be another.
    """
    chosen: dict[type, bool] = {}

    def __init__(self: torch.nn.Module, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        kind = type(self)
        if kind not in chosen:
            path = f"{kind.__module__}.{kind.__qualname__}"
            chosen[kind] = any(fnmatchcase(path, pattern) for pattern in options.modules)
        if chosen[kind]:
            self.compile(mode=options.mode, dynamic=options.dynamic, fullgraph=options.fullgraph)
        else:
            fallback("not among the modules to compile")

    return __init__


def check(context: CheckContext) -> CompatibilityResult:
    """Whether there is anything to compile."""
    if context.options.modules:
        return CompatibilityResult(True, "")
    return CompatibilityResult(
        False, "the option 'modules' of torch.compile names no class; give dotted paths such as 'net.layers.Block'"
    )
