# SPDX-License-Identifier: Apache-2.0
"""Which CPUs each rank of a node is to use: what the settings ask for, planned from the machine's topology."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from turbo_hydra.launch import topology
from turbo_hydra.launch.job import JobError, setting
from turbo_hydra.launch.topology import Cpus, Topology

MODES = ("node", "socket", "exclusive", "core-complex")
MEMORY = ("bind", "preferred", "interleave", "local")
_OFF = (None, "off", "none", "no", "false", "False", "null")


@dataclass(frozen=True)
class Settings:
    """What `runtime.affinity` asks for.

    Attributes
    ----------
    mode : str or None
        One of `MODES`; None leaves the ranks where their parent is.
    cpus : tuple of frozenset of int
        CPUs of each rank of the node; empty where the mode decides.
    nodes : tuple of int
        NUMA node of each rank; empty where its device decides.
    memory : str or None
        One of `MEMORY`.
    """

    mode: str | None = None
    cpus: tuple[Cpus, ...] = ()
    nodes: tuple[int, ...] = ()
    memory: str | None = None

    @classmethod
    def read(cls, runtime: Mapping[str, Any], ranks: int) -> Settings:
        """Read and check them.

        Raises
        ------
        JobError
            If a value is none of those known, or a list has not one entry for each rank of the node.
        """
        mode, memory = setting(runtime, "affinity.numa"), setting(runtime, "affinity.memory")
        mode = None if mode in _OFF or mode is False else str(mode).replace("_", "-")
        memory = None if memory in _OFF or memory is False else memory
        if mode is not None and mode not in MODES:
            raise JobError(f"'runtime.affinity.numa' must be one of off, {', '.join(MODES)}, found {mode!r}")
        if memory is not None and memory not in MEMORY:
            raise JobError(f"'runtime.affinity.memory' must be one of off, {', '.join(MEMORY)}, found {memory!r}")
        cpus = tuple(_cpus(item) for item in _list(runtime, "cpus", ranks))
        nodes = _list(runtime, "numa_node", ranks)
        if any(isinstance(node, bool) or not isinstance(node, int) or node < 0 for node in nodes):
            raise JobError(f"'runtime.affinity.numa_node' must be a list of node numbers, found {nodes!r}")
        return cls("node" if nodes and mode is None else mode, cpus, tuple(nodes), memory)

    @property
    def of_torch(self) -> bool:
        """Whether torch's own binding can do what is asked."""
        return self.mode is not None and not self.cpus and not self.nodes


def _list(runtime: Mapping[str, Any], key: str, ranks: int) -> list[Any]:
    value = setting(runtime, f"affinity.{key}")
    if value is None:
        return []
    if not isinstance(value, list) or len(value) != ranks:
        found = f"{len(value)} entries" if isinstance(value, list) else repr(value)
        raise JobError(
            f"'runtime.affinity.{key}' must be a list with one entry for each of the {ranks} ranks of a node, "
            f"found {found}"
        )
    return value


def _cpus(item: Any) -> Cpus:
    try:
        found = topology.parse(str(item)) if isinstance(item, (str, int)) and not isinstance(item, bool) else Cpus()
    except ValueError:
        found = Cpus()
    if not found:
        raise JobError(f'\'runtime.affinity.cpus\' must be lists of CPUs such as ["0-7,16-23","8-15"], found {item!r}')
    return found


@dataclass(frozen=True)
class Plan:
    """What is to be done for one rank.

    Attributes
    ----------
    cpus : frozenset of int or None
        To bind to; None binds nothing.
    how : str
        Where that came from, for the report.
    warnings : list of str
        Why something else is done than was asked for.
    """

    cpus: Cpus | None
    how: str
    warnings: list[str] = field(default_factory=list)


def plan(
    settings: Settings,
    rank: int,
    ranks: int,
    allowed: Cpus,
    machine: Topology,
    device_nodes: Sequence[int | None] = (),
) -> Plan:
    """Return what one rank of a node is to be bound to.

    Parameters
    ----------
    settings : Settings
        What is asked for.
    rank, ranks : int
        The rank's number on this node, and how many there are.
    allowed : frozenset of int
        The CPUs that it has now, a cpuset or taskset taken into account.
    machine : Topology
        The CPUs of the machine.
    device_nodes : sequence of int or None
        NUMA nodes of the devices that the ranks see, in their order; None for one that is not told.
    """
    if settings.cpus:
        asked = settings.cpus[rank]
        return Plan(asked, "runtime.affinity.cpus")
    if settings.mode is None:
        return Plan(None, "parent")
    warnings: list[str] = []
    nodes = [
        _node(settings, number, ranks, allowed, machine, device_nodes, warnings if number == rank else [])
        for number in range(ranks)
    ]
    node = nodes[rank]
    # Without devices, or with fewer ranks than those, only the ranks themselves share a node.
    peers = [number for number in range(ranks) if nodes[number] == node]
    cpus = _within(settings.mode, node, peers.index(rank), len(peers), allowed, machine, warnings)
    if not cpus:
        warnings.append(
            f"NUMA node {node} has none of the CPUs {topology.text(allowed)} that this rank may use, so it is not "
            "bound; see runtime.affinity.numa"
        )
        return Plan(None, "parent", warnings)
    return Plan(cpus, f"runtime.affinity.numa={settings.mode}, node {node}", warnings)


def _node(
    settings: Settings,
    rank: int,
    ranks: int,
    allowed: Cpus,
    machine: Topology,
    device_nodes: Sequence[int | None],
    warnings: list[str],
) -> int:
    if settings.nodes:
        return settings.nodes[rank]
    found = device_nodes[rank] if rank < len(device_nodes) else None
    if found is not None and found in machine.nodes:
        return found
    candidates = machine.with_cpus(allowed) or sorted(machine.nodes)
    if rank < len(device_nodes) and len(candidates) > 1:
        warnings.append(
            f"the NUMA node of device {rank} cannot be told, so ranks are spread over the nodes in order; "
            "say runtime.affinity.numa_node=[...]"
        )
    return candidates[rank * len(candidates) // ranks]


def _within(
    mode: str, node: int, position: int, peers: int, allowed: Cpus, machine: Topology, warnings: list[str]
) -> Cpus:
    """Return a rank's CPUs on its node, as one of several ranks there."""
    cpus = machine.nodes.get(node, Cpus()) & allowed
    if mode == "socket":
        return machine.socket(node) & allowed
    if mode == "core-complex" and cpus:
        groups = machine.caches(cpus)
        return groups[position % len(groups)]
    if mode == "exclusive" and cpus:
        cores = machine.cores(cpus)
        if len(cores) < peers:
            warnings.append(
                f"NUMA node {node} has {len(cores)} physical core{'s' if len(cores) > 1 else ''} for {peers} ranks, "
                "so they share all of them; see runtime.affinity.numa"
            )
            return cpus
        each, more = divmod(len(cores), peers)
        start = position * each + min(position, more)
        return Cpus().union(*cores[start : start + each + (position < more)])
    return cpus
