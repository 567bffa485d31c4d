# SPDX-License-Identifier: Apache-2.0
"""How a rank's own children start, where its script does not say."""

from __future__ import annotations

import multiprocessing
import multiprocessing.context
from collections.abc import Mapping
from typing import Any

from turbo_hydra.launch.job import JobError, setting


def check(runtime: Mapping[str, Any]) -> str | None:
    """Return `runtime.start_method`, None where it is not set.

    Raises
    ------
    JobError
        If this platform has no such method.
    """
    named = setting(runtime, "start_method")
    known = multiprocessing.get_all_start_methods()
    if named is not None and named not in known:
        raise JobError(f"'runtime.start_method' must be one of {', '.join(known)}, found {named!r}")
    return None if named is None else str(named)


def apply(runtime: Mapping[str, Any]) -> None:
    """Make it multiprocessing's default; a script that sets a method of its own still may."""
    named = check(runtime)
    if named is not None:
        # `set_start_method` could be called only once, and that is the script's.
        default: Any = multiprocessing.context._default_context
        default._default_context = multiprocessing.get_context(named)
