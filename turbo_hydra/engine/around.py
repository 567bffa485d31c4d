# SPDX-License-Identifier: Apache-2.0
"""What is put around the replacements of a process that looks at itself (a profiler's ranges); mostly nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Around = Callable[[str, Callable[..., Any]], Callable[..., Any]]


class _Current:
    around: Around | None = None


def set_around(around: Around | None) -> None:
    """Have `around(label, replacement)` called in place of each counted replacement that is prepared from now on.

    Compilers trace the replacement itself. Without this call nothing is put around anything.
    """
    _Current.around = around


def surrounded(label: str, function: Callable[..., Any]) -> Callable[..., Any] | None:
    """What is to be called in place of `function`; None for `function` itself."""
    return None if _Current.around is None else _Current.around(label, function)
