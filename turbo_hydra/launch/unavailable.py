# SPDX-License-Identifier: Apache-2.0
"""Settings that are known and not yet honoured: told, never ignored in silence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from turbo_hydra.launch.job import JobError, count, setting

_WITHOUT_EFFECT = (
    "affinity.numa",
    "affinity.cpus",
    "affinity.numa_node",
    "affinity.memory",
    "network.interface",
    "start_method",
)


def check(runtime: Mapping[str, Any]) -> list[str]:
    """Return a warning for each setting that changes nothing in this version.

    Raises
    ------
    JobError
        If the run cannot be what was asked for.
    """
    nodes = count(runtime, "nodes", 1, least=1)
    if nodes > 1:
        raise JobError(f"runtime.nodes={nodes} is not available in this version; a run has one node")
    return [
        f"runtime.{path}={value} has no effect in this version"
        for path in _WITHOUT_EFFECT
        if (value := setting(runtime, path)) is not None
    ]
