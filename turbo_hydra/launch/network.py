# SPDX-License-Identifier: Apache-2.0
"""The network interface that nodes talk over: that of the route to where they meet."""

from __future__ import annotations

import array
import fcntl
import ipaddress
import os
import socket
import struct
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from turbo_hydra.launch.job import JobError, setting

DEFAULT_PORT = 29400
# NCCL matches prefixes and takes lists and exclusions; `=` asks for exactly this name. Gloo takes one plain name.
VARIABLES = {"NCCL_SOCKET_IFNAME": "={}", "GLOO_SOCKET_IFNAME": "{}"}

_SIOCGIFCONF = 0x8912
_ENTRY = 40  # struct ifreq on 64-bit Linux
_MOST = 256


def addresses() -> dict[str, str]:
    """Return this host's addresses, each with the name of its interface."""
    return {**_ipv4(), **_ipv6()}


def _ipv4() -> dict[str, str]:
    found: dict[str, str] = {}
    room = array.array("B", bytes(_ENTRY * _MOST))
    place, _ = room.buffer_info()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        told = fcntl.ioctl(probe, _SIOCGIFCONF, struct.pack("iL", len(room) * room.itemsize, place))
    used = struct.unpack("iL", told)[0]
    for start in range(0, used, _ENTRY):
        entry = room[start : start + _ENTRY].tobytes()
        # A second address of an interface stands under a label such as eth0:1.
        name = entry[:16].split(b"\0", 1)[0].decode().partition(":")[0]
        found[socket.inet_ntoa(entry[20:24])] = name
    return found


def _ipv6() -> dict[str, str]:
    found: dict[str, str] = {}
    try:
        lines = Path("/proc/net/if_inet6").read_text().splitlines()
    except OSError:
        return found
    for line in lines:
        digits, *_, name = line.split()
        found[str(ipaddress.IPv6Address(int(digits, 16)))] = name
    return found


def split(endpoint: str) -> tuple[str, int]:
    """Split `host:port`; the port may be missing, an IPv6 address stands in brackets.

    Raises
    ------
    JobError
        If it is neither.
    """
    host, colon, port = endpoint.rpartition(":")
    if endpoint.endswith("]") or not colon or (":" in host and not host.startswith("[")):
        host, port = endpoint, str(DEFAULT_PORT)
    host = host.strip("[]")
    if not host or not port.isdigit() or int(port) > 65535:
        raise JobError(f"'runtime.rendezvous.endpoint' must be host or host:port, found {endpoint!r}")
    return host, int(port)


def resolve(host: str) -> list[str]:
    """Return the addresses of a host; none where its name is not known here."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_DGRAM)
    except OSError:
        return []
    return list(dict.fromkeys(str(item[4][0]) for item in found))


def source(host: str, port: int) -> str | None:
    """Return the address that packets from here to a host would carry; nothing is sent."""
    for address in resolve(host):
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect((address, port))
            except OSError:  # no route
                continue
            return str(probe.getsockname()[0])
    return None


def is_host(endpoint: str) -> bool:
    """Tell whether the place where nodes meet is this host: one of its addresses is one of ours.

    torch compares host names, which name another machine in a container or a network namespace.
    """
    own = addresses()
    return any(address in own for address in resolve(split(endpoint)[0]))


def is_loopback(address: str) -> bool:
    """Tell whether an address leads only to the host itself."""
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


@dataclass
class Choice:
    """The interface of a node.

    Attributes
    ----------
    interface, address : str or None
        Its name, and this node's address on it; None where nothing was chosen.
    why : str
        Where it came from, for the report.
    variables : dict
        What was set for the ranks, or was set by the user already.
    warnings : list of str
        What the user should know.
    """

    interface: str | None = None
    address: str | None = None
    why: str = "one node"
    variables: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return dict(vars(self))


def choose(
    runtime: Mapping[str, Any], nodes: int, endpoint: str | None, environment: MutableMapping[str, str]
) -> Choice:
    """Choose the interface and set the variables of NCCL and Gloo that the user has not set.

    Parameters
    ----------
    runtime : mapping
        The settings under `runtime`; `network.interface` overrides the route.
    nodes : int
        With one node nothing is set, unless an interface is named.
    endpoint : str or None
        Where the nodes meet.
    environment : mutable mapping
        The ranks' environment.

    Raises
    ------
    JobError
        If `runtime.network.interface` names none that is here.
    """
    named = setting(runtime, "network.interface")
    if nodes == 1 and named is None:
        return Choice(variables=_users(environment))
    choice = _named(str(named)) if named is not None else _of_route(endpoint)
    if choice.interface is not None:
        for variable, syntax in VARIABLES.items():
            environment.setdefault(variable, syntax.format(choice.interface))
    choice.variables = _users(environment)
    for variable, value in choice.variables.items():
        if nodes > 1 and value.lstrip("=") == "lo":
            choice.warnings.append(
                f"{variable}={value} leads only to the host itself, and there are {nodes} nodes; unset it or set it to "
                "an interface between them"
            )
        if variable.startswith("GLOO") and value.startswith(("^", "=")):
            choice.warnings.append(f"{variable}={value} is written as NCCL takes it; Gloo takes one plain name")
    return choice


def _users(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: environment[name] for name in VARIABLES if environment.get(name)}


def _named(name: str) -> Choice:
    own = addresses()
    if name not in set(own.values()) | set(os.listdir("/sys/class/net")):
        known = ", ".join(sorted(set(own.values())))
        raise JobError(f"'runtime.network.interface' is {name}, and this host has {known}")
    address = next((item for item, interface in own.items() if interface == name), None)
    return Choice(name, address, "runtime.network.interface")


def _of_route(endpoint: str | None) -> Choice:
    if endpoint is None:
        return _undetermined("there is no runtime.rendezvous.endpoint")
    host, port = split(endpoint)
    address = source(host, port)
    if address is None:
        return _undetermined(f"there is no route to {host}")
    if is_loopback(address):
        return _undetermined(f"{host} is {address} here, which other hosts cannot reach")
    interface = addresses().get(address.partition("%")[0])
    if interface is None:
        return _undetermined(f"no interface has the address {address}")
    return Choice(interface, address, f"route to {host}")


def _undetermined(reason: str) -> Choice:
    text = (
        f"the interface between the nodes cannot be told: {reason}; none is set, name it by runtime.network.interface"
    )
    return Choice(why="undetermined", warnings=[text])
