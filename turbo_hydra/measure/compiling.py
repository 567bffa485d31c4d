# SPDX-License-Identifier: Apache-2.0
"""What `torch.compile` did so far, and how the meter stays out of it.

Nothing here imports the compiler into a script that does not use it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

import torch


def in_use() -> bool:
    """Whether the compiler has been imported."""
    return "torch._dynamo" in sys.modules


def compiled_graphs() -> int:
    """Number of graphs compiled in this process."""
    utilities = sys.modules.get("torch._dynamo.utils")
    counters = getattr(utilities, "counters", None)
    return int(counters["stats"].get("unique_graphs", 0)) if counters is not None and "stats" in counters else 0


def compile_seconds() -> float | None:
    """Time spent in the compiler; None while it was never used or does not tell."""
    utilities = sys.modules.get("torch._dynamo.utils")
    spent = getattr(utilities, "calculate_time_spent", None)
    if spent is None or not compiled_graphs():
        return None
    total = spent().get("entire_frame_compile")
    return None if total is None else float(total)


def shield(owner: type, methods: Iterable[str], functions: Iterable[Callable[..., Any]]) -> None:
    """Make the compiler leave alone what is called in the midst of a compiled step.

    Between two graphs of a compiled function all frames that run are compiled too, which for bookkeeping would mean
    compiling anew at every step. To be called once the compiler is there.

    Parameters
    ----------
    owner, methods : type, iterable of str
        Methods that are left alone with all that they call.
    functions : iterable of callable
        Functions that are marked in place, since others hold them already.
    """
    for name in methods:
        setattr(owner, name, torch.compiler.disable(vars(owner)[name]))
    for function in functions:
        torch.compiler.disable(function, recursive=False)
