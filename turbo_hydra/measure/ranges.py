# SPDX-License-Identifier: Apache-2.0
"""A range in the profiler's trace around each call of a replacement, named after its group and target."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from turbo_hydra.engine.around import set_around

Function = Callable[..., Any]


def install() -> None:
    """Have the replacements that are prepared from now on tell the profiler; for runs that will be profiled."""
    set_around(ranged)


def ranged(label: str, function: Function) -> Function:
    """`function` in a range, while a profiler runs.

    Parameters
    ----------
    label : str
        The range's name: `group target`.
    function : callable
        The replacement. Its backward is no part of the range: autograd calls that later, under names of its own.
    """
    enabled: Callable[[], bool] = torch.autograd._profiler_enabled  # type: ignore[attr-defined]

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not enabled():
            return function(*args, **kwargs)
        with torch.profiler.record_function(label):
            return function(*args, **kwargs)

    return call
