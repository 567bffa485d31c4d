# SPDX-License-Identifier: Apache-2.0
"""What `torch.compile` did so far, without importing the compiler into a script that does not use it."""

from __future__ import annotations

import sys


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
