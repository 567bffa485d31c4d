# SPDX-License-Identifier: Apache-2.0
"""A run over several nodes: each has a command and an agent of its own, and all share the run's folder."""

from __future__ import annotations

import os
import time
from typing import Any

from turbo_hydra.launch import files, network
from turbo_hydra.launch.job import Job, JobError, count, number, setting
from turbo_hydra.launch.timing import SHUTDOWN_TIMEOUT


def number_of(job: Job) -> int:
    """Return the number of nodes."""
    return count(job.runtime, "nodes", 1, least=1)


def rank_of(job: Job) -> int:
    """Return this node's number; that of a run on one node is 0."""
    return count(job.runtime, "node_rank", 0)


def check(job: Job) -> None:
    """Refuse a run over several nodes that does not say what each node must know.

    Raises
    ------
    JobError
        Naming the setting.
    """
    nodes = number_of(job)
    if nodes == 1:
        return
    node = setting(job.runtime, "node_rank")
    if node is None or rank_of(job) >= nodes:
        raise JobError(
            f"with runtime.nodes={nodes} each node is told its number, runtime.node_rank=0 to {nodes - 1}, found {node}"
        )
    endpoint = setting(job.runtime, "rendezvous.endpoint")
    if endpoint is None:
        raise JobError(
            f"with runtime.nodes={nodes} set runtime.rendezvous.endpoint=HOST:PORT, the same on each node, where HOST "
            "is one of them"
        )
    network.split(str(endpoint))


def is_host(job: Job) -> bool:
    """Tell whether this node keeps the store through which the nodes meet."""
    told = setting(job.runtime, "rendezvous.is_host")
    return network.is_host(str(setting(job.runtime, "rendezvous.endpoint"))) if told is None else bool(told)


def wait_for_others(job: Job) -> None:
    """Wait until the other nodes' agents have recorded how they ended, as long as they may take for it."""
    limit = number(job.runtime, "timeouts.shutdown", SHUTDOWN_TIMEOUT) + 10.0
    end = time.monotonic() + limit
    while time.monotonic() < end:
        records = [files.read_json(job.folder / "agents" / f"{node}.json") for node in range(number_of(job))]
        if all(isinstance(record, dict) and record.get("status") is not None for record in records):
            return
        time.sleep(0.1)


def begin_record(job: Job, choice: network.Choice) -> dict[str, Any]:
    """Write the record of this node's agent as it begins, and return it."""
    data = {
        "node": rank_of(job),
        "host": os.uname().nodename,
        "pid": os.getpid(),
        "status": None,
        "started": time.time(),
        "network": choice.to_dict(),
    }
    files.write_json(job.folder / "agents" / f"{rank_of(job)}.json", data)
    return data
