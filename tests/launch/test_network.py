# SPDX-License-Identifier: Apache-2.0
"""The interface between the nodes: from the route, never the loopback, and what the user set stays."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from turbo_hydra.launch import network
from turbo_hydra.launch.job import JobError


def own_address() -> tuple[str, str]:
    """Return an address of this host that others could reach, with its interface."""
    found = [item for item in network.addresses().items() if ":" not in item[0] and not network.is_loopback(item[0])]
    if not found:
        pytest.skip("this host has no interface but the loopback")
    return found[0]


def choose(
    nodes: int, endpoint: str | None, runtime: dict[str, Any] | None = None, **variables: str
) -> tuple[network.Choice, dict[str, str]]:
    environment = dict(variables)
    return network.choose(runtime or {}, nodes, endpoint, environment), environment


def test_the_hosts_addresses_have_names() -> None:
    found = network.addresses()
    assert found.get("127.0.0.1") == "lo"
    assert set(found.values()) <= {path.name for path in Path("/sys/class/net").iterdir()}


@pytest.mark.parametrize(
    ("endpoint", "host", "port"),
    [("a:1", "a", 1), ("a", "a", 29400), ("10.0.0.1:80", "10.0.0.1", 80), ("[fd00::1]:5", "fd00::1", 5),
     ("[fd00::1]", "fd00::1", 29400), ("fd00::1", "fd00::1", 29400)],
)  # fmt: skip
def test_where_nodes_meet(endpoint: str, host: str, port: int) -> None:
    assert network.split(endpoint) == (host, port)


@pytest.mark.parametrize("wrong", ["", ":1", "a:b", "a:99999"])
def test_what_is_no_place_is_refused(wrong: str) -> None:
    with pytest.raises(JobError, match=r"runtime\.rendezvous\.endpoint"):
        network.split(wrong)


def test_one_node_needs_no_interface() -> None:
    choice, environment = choose(1, None)
    assert (choice.interface, environment, choice.warnings) == (None, {}, [])


def test_the_route_names_the_interface_in_each_librarys_own_syntax() -> None:
    address, interface = own_address()
    choice, environment = choose(2, f"{address}:29400")
    assert (choice.interface, choice.address, choice.warnings) == (interface, address, [])
    assert environment == {"NCCL_SOCKET_IFNAME": f"={interface}", "GLOO_SOCKET_IFNAME": interface}
    assert network.is_host(f"{address}:29400")


def test_what_the_user_set_stays_and_is_not_carried_over() -> None:
    address, interface = own_address()
    choice, environment = choose(2, address, NCCL_SOCKET_IFNAME="^lo,docker")
    assert environment == {"NCCL_SOCKET_IFNAME": "^lo,docker", "GLOO_SOCKET_IFNAME": interface}
    assert choice.variables == environment
    choice, _ = choose(2, address, GLOO_SOCKET_IFNAME="^lo")
    assert "Gloo takes one plain name" in choice.warnings[0]
    choice, _ = choose(2, address, GLOO_SOCKET_IFNAME="lo")
    assert "leads only to the host itself" in choice.warnings[0]


@pytest.mark.parametrize("endpoint", [None, "127.0.0.1:1", "localhost", "no-such-host.invalid:1"])
def test_where_none_can_be_told_nothing_is_set_and_the_setting_is_named(endpoint: str | None) -> None:
    choice, environment = choose(2, endpoint)
    assert (choice.interface, environment) == (None, {})
    assert len(choice.warnings) == 1
    assert "runtime.network.interface" in choice.warnings[0]


def test_a_named_interface_wins() -> None:
    _, interface = own_address()
    choice, environment = choose(2, "127.0.0.1", {"network": {"interface": interface}})
    assert (choice.interface, environment["GLOO_SOCKET_IFNAME"]) == (interface, interface)
    assert choice.why == "runtime.network.interface"
    with pytest.raises(JobError, match="this host has"):
        choose(1, None, {"network": {"interface": "moon0"}})


def test_another_host_is_not_this_one() -> None:
    assert network.is_host("127.0.0.1:1")
    assert not network.is_host("198.51.100.7:1")  # an address for documentation
    assert not network.is_host("no-such-host.invalid:1")


def test_a_host_name_that_resolves_elsewhere_is_not_this_host(monkeypatch: pytest.MonkeyPatch) -> None:
    name = socket.gethostname()
    monkeypatch.setattr(network, "resolve", lambda host: ["198.51.100.7"] if host == name else [])
    assert not network.is_host(f"{name}:29400")
