# SPDX-License-Identifier: Apache-2.0
"""A rank binds itself to CPUs and memory, and asks the kernel what came of it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from turbo_hydra.engine import visible
from turbo_hydra.launch import memory_policy, topology
from turbo_hydra.launch.affinity import Plan, Settings, plan
from turbo_hydra.launch.job import setting
from turbo_hydra.launch.topology import Cpus, Topology

# The CPUs of the agent, for its ranks: whoever differs was bound by torch on the way.
PARENT_VARIABLE = "TURBO_HYDRA_PARENT_CPUS"


def bind(runtime: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
    """Bind this process, which is a rank, and return what the kernel says afterwards; nothing here ends a rank.

    Parameters
    ----------
    runtime : mapping
        The settings under `runtime`.
    environment : mapping
        Says which rank of the node this is, and which devices it sees.

    Returns
    -------
    dict
        `cpus` and `memory` as read back, `how`, `device` (its place on the bus or None), `warnings`.

    Raises
    ------
    JobError
        If the settings are wrong.
    """
    rank = int(environment.get("LOCAL_RANK", "0"))
    ranks = max(int(environment.get("LOCAL_WORLD_SIZE", "1")), rank + 1)
    settings = Settings.read(runtime, ranks)
    before = Cpus(os.sched_getaffinity(0))
    _, seen = ("", []) if setting(runtime, "accelerator") == "cpu" else visible.devices(environment)
    device = seen[rank] if rank < len(seen) else None
    parent = environment.get(PARENT_VARIABLE)
    if settings.of_torch and parent is not None and topology.parse(parent) != before:
        chosen = Plan(None, f"torch, runtime.affinity.numa={settings.mode}")
    else:
        nodes = [visible.numa_node(item) for item in seen]
        chosen = plan(settings, rank, ranks, before, Topology.read(), nodes)
    warnings = list(chosen.warnings)
    how = _set_cpus(chosen, warnings)
    if settings.memory is not None:
        _set_memory(settings.memory, warnings)
    return {
        "cpus": topology.text(os.sched_getaffinity(0)),
        "memory": memory_policy.policy(),
        "how": how,
        "device": device.address if device else None,
        "warnings": warnings,
    }


def _set_cpus(chosen: Plan, warnings: list[str]) -> str:
    if chosen.cpus is None:
        return chosen.how
    wanted = topology.text(chosen.cpus)
    try:
        os.sched_setaffinity(0, chosen.cpus)
    except OSError as problem:
        warnings.append(f"cannot bind to CPUs {wanted} ({problem.strerror}), so this rank is not bound; {chosen.how}")
        return "parent"
    got = Cpus(os.sched_getaffinity(0))
    if got != chosen.cpus:
        warnings.append(f"of CPUs {wanted} only {topology.text(got)} may be used here; {chosen.how}")
    return chosen.how


def _set_memory(mode: str, warnings: list[str]) -> None:
    machine = Topology.read()
    here = {machine.node_of[cpu] for cpu in os.sched_getaffinity(0) if cpu in machine.node_of}
    nodes = sorted(machine.nodes) if mode == "interleave" else sorted(here)
    # A policy of one preferred node is what the kernel knows by that name.
    try:
        memory_policy.set_policy(mode, nodes[:1] if mode == "preferred" else nodes)
    except OSError as problem:
        warnings.append(f"the kernel refused runtime.affinity.memory={mode} ({problem.strerror}); memory is not bound")
