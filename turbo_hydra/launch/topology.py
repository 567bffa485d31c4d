# SPDX-License-Identifier: Apache-2.0
"""A machine's CPUs as Linux shows them: which share a core, a cache, a socket, a NUMA node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

Cpus = frozenset[int]


def parse(text: str) -> Cpus:
    """Read a list of CPUs as the kernel writes it.

    Raises
    ------
    ValueError
        If it is none.

    Examples
    --------
    >>> sorted(parse("0-2,8"))
    [0, 1, 2, 8]
    """
    found: set[int] = set()
    for part in text.strip().split(","):
        if not part.strip():
            continue
        first, dash, last = part.partition("-")
        start, end = int(first), int(last if dash else first)
        if not 0 <= start <= end:
            raise ValueError(f"{part!r} is no range of CPUs")
        found.update(range(start, end + 1))
    return frozenset(found)


def text(cpus: Iterable[int]) -> str:
    """Write a list of CPUs as the kernel does.

    Examples
    --------
    >>> text({8, 0, 1, 2})
    '0-2,8'
    """
    parts: list[list[int]] = []
    for cpu in sorted(cpus):
        if parts and parts[-1][1] == cpu - 1:
            parts[-1][1] = cpu
        else:
            parts.append([cpu, cpu])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)


@dataclass(frozen=True)
class Topology:
    """The CPUs of a machine.

    Attributes
    ----------
    nodes : mapping of int to frozenset of int
        CPUs of each NUMA node.
    core_of, cache_of : mapping of int to frozenset of int
        For each CPU, those that share its physical core, and those that share its last cache.
    socket_of : mapping of int to int
        For each CPU, its package.
    """

    nodes: Mapping[int, Cpus]
    core_of: Mapping[int, Cpus]
    cache_of: Mapping[int, Cpus]
    socket_of: Mapping[int, int]

    @classmethod
    def read(cls, root: Path = Path("/sys")) -> Topology:
        """Read it from sysfs. What a machine does not show counts as one: one node, one socket, cores of one CPU."""
        system = root / "devices" / "system"
        cpus = parse(_read(system / "cpu" / "online") or "0")
        nodes = {
            int(folder.name[4:]): parse(_read(folder / "cpulist"))
            for folder in sorted((system / "node").glob("node[0-9]*"))
        }
        core_of: dict[int, Cpus] = {}
        cache_of: dict[int, Cpus] = {}
        socket_of: dict[int, int] = {}
        for cpu in sorted(cpus):
            folder = system / "cpu" / f"cpu{cpu}"
            core_of[cpu] = parse(_read(folder / "topology" / "thread_siblings_list")) or frozenset({cpu})
            socket_of[cpu] = int(_read(folder / "topology" / "physical_package_id") or 0)
            cache_of[cpu] = _last_cache(folder / "cache") or cpus
        return cls(nodes or {0: cpus}, core_of, cache_of, socket_of)

    @cached_property
    def node_of(self) -> dict[int, int]:
        """For each CPU, its NUMA node."""
        return {cpu: node for node, cpus in self.nodes.items() for cpu in cpus}

    def with_cpus(self, allowed: Cpus) -> list[int]:
        """Return the nodes that have a CPU among those allowed; nodes of memory alone have none."""
        return [node for node, cpus in sorted(self.nodes.items()) if cpus & allowed]

    def cores(self, cpus: Cpus) -> list[Cpus]:
        """Return the physical cores among CPUs, each as its CPUs that are among them, in order."""
        return sorted({self.core_of.get(cpu, frozenset({cpu})) & cpus for cpu in cpus}, key=min)

    def caches(self, cpus: Cpus) -> list[Cpus]:
        """Return the groups of CPUs that share a last cache, largest first."""
        found = {self.cache_of.get(cpu, cpus) & cpus for cpu in cpus}
        return sorted(found, key=lambda group: (-len(group), min(group)))

    def socket(self, node: int) -> Cpus:
        """Return the CPUs of the socket that a node is part of."""
        sockets = {self.socket_of.get(cpu, 0) for cpu in self.nodes.get(node, ())}
        return frozenset(cpu for cpu, socket in self.socket_of.items() if socket in sockets)


def _last_cache(folder: Path) -> Cpus:
    levels = {
        int(_read(index / "level") or 0): parse(_read(index / "shared_cpu_list"))
        for index in folder.glob("index[0-9]*")
        if _read(index / "type") in {"Unified", "Data"}
    }
    return levels[max(levels)] if levels else frozenset()


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
