# SPDX-License-Identifier: Apache-2.0
"""Which CPUs a rank is given, and what the kernel says it has."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbo_hydra.engine import visible
from turbo_hydra.engine.visible import Device, devices, numa_node
from turbo_hydra.launch import affinity, memory_policy
from turbo_hydra.launch.affinity import Settings, plan
from turbo_hydra.launch.job import JobError
from turbo_hydra.launch.topology import Topology, parse, text

if TYPE_CHECKING:
    from tests.launch.conftest import Launching

HERE = sorted(os.sched_getaffinity(0))
two_cpus = pytest.mark.skipif(len(HERE) < 2, reason="needs two CPUs")


def machine(nodes: int = 4, cores: int = 4, sockets: int = 2) -> Topology:
    """Make a machine as large servers are: the second thread of each core is numbered after all first ones."""
    total = nodes * cores
    node_of = {cpu: cpu % total // cores for cpu in range(2 * total)}
    return Topology(
        nodes={node: frozenset(cpu for cpu in node_of if node_of[cpu] == node) for node in range(nodes)},
        core_of={cpu: frozenset({cpu % total, cpu % total + total}) for cpu in node_of},
        cache_of={
            cpu: frozenset(other for other in node_of if other % total // 2 == cpu % total // 2) for cpu in node_of
        },
        socket_of={cpu: node * sockets // nodes for cpu, node in node_of.items()},
    )


EVERY = frozenset(range(32))


def cpus(mode: str, rank: int, ranks: int, device_nodes: tuple[int | None, ...] = (), **settings: Any) -> str:
    chosen = plan(Settings(mode, **settings), rank, ranks, EVERY, machine(), device_nodes)
    assert chosen.warnings == []
    assert chosen.cpus is not None
    return text(chosen.cpus)


def test_lists_of_cpus_are_read_as_the_kernel_writes_them() -> None:
    assert sorted(parse("0-2,8, 10-10")) == [0, 1, 2, 8, 10]
    assert parse("") == frozenset()
    for wrong in ("a", "3-1", "-1", "1-"):
        with pytest.raises(ValueError, match=r"range of CPUs|invalid literal"):
            parse(wrong)


@given(st.frozensets(st.integers(0, 300)))
def test_a_list_of_cpus_survives_writing_and_reading(found: frozenset[int]) -> None:
    assert parse(text(found)) == found


def test_a_rank_is_bound_next_to_its_device() -> None:
    assert cpus("node", 0, 2, (3, 1)) == "12-15,28-31"
    assert cpus("node", 1, 2, (3, 1)) == "4-7,20-23"
    assert cpus("socket", 0, 2, (3, 1)) == "8-15,24-31"
    assert cpus("core-complex", 0, 2, (3, 1)) == "12-13,28-29"
    assert cpus("core-complex", 1, 2, (3, 3)) == "14-15,30-31"
    # Two ranks on one node: half of its cores each, siblings together.
    assert [cpus("exclusive", rank, 2, (3, 3)) for rank in (0, 1)] == ["12-13,28-29", "14-15,30-31"]


def test_without_devices_ranks_are_spread_over_the_nodes() -> None:
    assert [cpus("node", rank, 8) for rank in (0, 1, 7)] == ["0-3,16-19", "0-3,16-19", "12-15,28-31"]
    assert [cpus("node", rank, 2) for rank in (0, 1)] == ["0-3,16-19", "8-11,24-27"]


def test_the_lists_of_the_user_win() -> None:
    assert cpus("node", 1, 2, (0, 0), nodes=(0, 2)) == "8-11,24-27"
    assert cpus("node", 1, 2, (0, 0), cpus=(parse("0-7"), parse("8-15"))) == "8-15"


@given(st.integers(1, 4), st.integers(1, 8), st.integers(1, 16), st.data())
def test_exclusive_ranks_share_no_core_and_waste_none(nodes: int, cores: int, ranks: int, data: st.DataObject) -> None:
    made = machine(nodes, cores, 1)
    every = sorted(made.core_of)
    allowed = frozenset(data.draw(st.sets(st.sampled_from(every), min_size=1)))
    plans = [plan(Settings("exclusive"), rank, ranks, allowed, made) for rank in range(ranks)]
    given_to = [chosen.cpus for chosen in plans if chosen.cpus is not None and not chosen.warnings]
    for chosen in plans:
        assert chosen.cpus is None or chosen.cpus <= allowed
        for cpu in chosen.cpus or ():
            assert made.core_of[cpu] & allowed <= (chosen.cpus or frozenset())
    assert sum(map(len, given_to)) == len(frozenset().union(*given_to))


def test_what_cannot_be_done_is_told_and_binds_nothing() -> None:
    narrow = frozenset({0, 1})
    chosen = plan(Settings("node"), 0, 1, narrow, machine(), (3,))
    assert chosen.cpus is None
    assert "NUMA node 3 has none of the CPUs 0-1" in chosen.warnings[0]
    chosen = plan(Settings("exclusive"), 0, 3, narrow, machine(), (0, 0, 0))
    assert chosen.cpus == narrow
    assert "2 physical cores for 3 ranks" in chosen.warnings[0]
    chosen = plan(Settings("node"), 1, 2, EVERY, machine(), (None, None))
    assert text(chosen.cpus or ()) == "8-11,24-27"
    assert "the NUMA node of device 1 cannot be told" in chosen.warnings[0]


@pytest.mark.parametrize("off", [None, "off", "none", "False", False])
def test_off_binds_nothing(off: Any) -> None:
    settings = Settings.read({"affinity": {"numa": off, "memory": off}}, 2)
    assert settings == Settings()
    assert plan(settings, 0, 2, EVERY, machine()).cpus is None


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"numa": "moon"}, "must be one of off, node, socket, exclusive, core-complex, found 'moon'"),
        ({"memory": "moon"}, "must be one of off, bind"),
        ({"cpus": "0-7"}, "one entry for each of the 2 ranks of a node, found '0-7'"),
        ({"cpus": ["0-7"]}, "found 1 entries"),
        ({"cpus": ["0-7", "x"]}, "found 'x'"),
        ({"numa_node": [0]}, "found 1 entries"),
        ({"numa_node": [0, -1]}, "list of node numbers"),
    ],
)
def test_wrong_settings_are_refused(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(JobError, match=r"runtime\.affinity") as told:
        Settings.read({"affinity": wrong}, 2)
    assert words in str(told.value)


def sysfs(root: Path) -> None:
    """Write two nodes of two cores with two threads each, as Linux shows them; one CPU is offline."""
    files = {"node/node0/cpulist": "0-1,4-5", "node/node1/cpulist": "2-3,6", "cpu/online": "0-6"}
    for cpu in range(7):
        files[f"cpu/cpu{cpu}/topology/thread_siblings_list"] = f"{cpu % 4},{cpu % 4 + 4}" if cpu % 4 != 3 else "3"
        files[f"cpu/cpu{cpu}/topology/physical_package_id"] = str(cpu % 4 // 2)
        for index, (level, kind, shared) in enumerate([("1", "Data", str(cpu)), ("3", "Unified", "0-6")]):
            files[f"cpu/cpu{cpu}/cache/index{index}/level"] = level
            files[f"cpu/cpu{cpu}/cache/index{index}/type"] = kind
            files[f"cpu/cpu{cpu}/cache/index{index}/shared_cpu_list"] = shared
    for name, content in files.items():
        path = root / "devices" / "system" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content + "\n")


def test_the_topology_is_read_from_sysfs(tmp_path: Path) -> None:
    sysfs(tmp_path)
    found = Topology.read(tmp_path)
    assert found.nodes == {0: frozenset({0, 1, 4, 5}), 1: frozenset({2, 3, 6})}
    assert found.cores(found.nodes[1]) == [frozenset({2, 6}), frozenset({3})]
    assert found.socket(1) == frozenset({2, 3, 6})
    assert found.caches(frozenset(range(7))) == [frozenset(range(7))]
    bare = Topology.read(tmp_path / "absent")
    assert bare.nodes == {0: frozenset({0})}


def test_this_machines_topology_has_this_processs_cpus() -> None:
    found = Topology.read()
    assert frozenset(HERE) <= frozenset().union(*found.nodes.values())
    assert frozenset().union(*found.cores(frozenset(HERE))) == frozenset(HERE)


NVIDIA = [("0000:17:00.0", "GPU-8a3c", 0), ("0000:65:00.0", "GPU-8a4d", 0), ("0000:CA:00.0", "GPU-11ff", 1)]


def nvidia(root: Path) -> None:
    for address, uuid, node in NVIDIA:
        folder = root / "proc/driver/nvidia/gpus" / address
        folder.mkdir(parents=True)
        (folder / "information").write_text(f"Model: \t\t NVIDIA H200\nIRQ:   \t\t 18\nGPU UUID: \t {uuid}\n")
        place = root / "sys/bus/pci/devices" / address.lower()
        place.mkdir(parents=True)
        (place / "numa_node").write_text(f"{node}\n")


@pytest.mark.parametrize(
    ("listed", "nodes"),
    [
        (None, [0, 0, 1]),
        ("2,0", [1, 0]),
        ("GPU-11,GPU-8a3c", [1, 0]),
        ("GPU-8a,0", []),  # two begin so
        ("0,7,1", [0]),
        ("MIG-5c89,2", [None, 1]),
        ("", []),
        ("-1", []),
    ],
)
def test_cuda_devices_and_their_nodes(tmp_path: Path, listed: str | None, nodes: list[int | None]) -> None:
    nvidia(tmp_path)
    environment = {} if listed is None else {"CUDA_VISIBLE_DEVICES": listed}
    kind, found = devices(environment, tmp_path)
    assert (kind, [numa_node(device, tmp_path) for device in found]) == ("cuda", nodes)


def kfd(root: Path) -> None:
    for number, (simds, location, unique) in enumerate([(0, 0, 0), (320, 0x1700, 0xAB), (320, 0xCA08, 0xCD)]):
        folder = root / "sys/class/kfd/kfd/topology/nodes" / str(number)
        folder.mkdir(parents=True)
        text = f"cpu_cores_count 0\nsimd_count {simds}\nlocation_id {location}\ndomain 0\nunique_id {unique}\n"
        (folder / "properties").write_text(text)
    for address, node in [("0000:17:00.0", 0), ("0000:ca:01.0", 1)]:
        place = root / "sys/bus/pci/devices" / address
        place.mkdir(parents=True)
        (place / "numa_node").write_text(f"{node}\n")


@pytest.mark.parametrize(
    ("variables", "nodes"),
    [
        ({}, [0, 1]),
        ({"HIP_VISIBLE_DEVICES": "1"}, [1]),
        ({"CUDA_VISIBLE_DEVICES": "1,0"}, [1, 0]),
        ({"HIP_VISIBLE_DEVICES": "0", "CUDA_VISIBLE_DEVICES": "1"}, [0]),
        # ROCR's list is what HIP's counts in.
        ({"ROCR_VISIBLE_DEVICES": "1,0", "HIP_VISIBLE_DEVICES": "0"}, [1]),
        ({"ROCR_VISIBLE_DEVICES": "GPU-00000000000000cd"}, [1]),
    ],
)
def test_hip_devices_and_their_nodes(tmp_path: Path, variables: dict[str, str], nodes: list[int]) -> None:
    kfd(tmp_path)
    kind, found = devices(variables, tmp_path)
    assert (kind, [numa_node(device, tmp_path) for device in found]) == ("hip", nodes)


def test_a_machine_without_devices(tmp_path: Path) -> None:
    assert devices({}, tmp_path) == (None, [])
    assert numa_node(Device("0000:00:00.0"), tmp_path) is None
    assert visible.models([Device(None)]) == ["unknown"]


BIND = """
import json, os, sys
from turbo_hydra.launch import binding
environment = {"LOCAL_RANK": sys.argv[2], "LOCAL_WORLD_SIZE": "2"}
print(json.dumps(binding.bind({"affinity": json.loads(sys.argv[1])}, environment)))
"""


def bound(settings: dict[str, Any], rank: int = 0) -> dict[str, Any]:
    command = [sys.executable, "-c", BIND, json.dumps(settings), str(rank)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    data: dict[str, Any] = json.loads(said)
    return data


def test_what_is_reported_is_what_the_kernel_says() -> None:
    told = bound({"cpus": [str(HERE[-1]), str(HERE[0])]})
    assert (told["cpus"], told["how"], told["warnings"]) == (str(HERE[-1]), "runtime.affinity.cpus", [])
    told = bound({})
    assert (told["cpus"], told["memory"], told["how"]) == (text(HERE), "default", "parent")


def test_a_cpu_that_is_not_there_warns_and_binds_nothing() -> None:
    told = bound({"cpus": ["1000", "1001"]})
    assert (told["cpus"], told["how"]) == (text(HERE), "parent")
    assert "cannot bind to CPUs 1000" in told["warnings"][0]
    told = bound({"cpus": [f"{HERE[0]},1000", "0"]})
    assert told["cpus"] == str(HERE[0])
    assert "only" in told["warnings"][0]


@pytest.mark.parametrize("mode", affinity.MEMORY)
def test_memory_is_bound_when_asked_or_the_reason_is_told(mode: str) -> None:
    told = bound({"memory": mode})
    if told["warnings"]:
        assert "the kernel refused" in told["warnings"][0]
    else:
        assert told["memory"].partition(":")[0] == mode
    assert memory_policy.policy().partition(":")[0] in {"default", "unknown (Function not implemented)"}


@pytest.mark.slow
def test_each_rank_reports_its_cpus_and_off_leaves_them_where_the_parent_is(launching: Launching) -> None:
    script = "import os\nprint(sorted(os.sched_getaffinity(0)))\n"
    ran = launching.run(launching.job(script, ranks=2))
    assert [rank["bound"]["cpus"] for rank in ran.report["ranks"]] == [text(HERE)] * 2
    assert ran.log(0) == ran.log(1) == f"{HERE}\n"


@pytest.mark.slow
@two_cpus
def test_ranks_are_bound_to_cores_of_their_own(launching: Launching) -> None:
    script = "import os\nprint(sorted(os.sched_getaffinity(0)))\n"
    runtime = {"affinity": {"numa": "exclusive", "memory": "local"}}
    ran = launching.run(launching.job(script, ranks=2, runtime=runtime))
    assert ran.status == 0, ran.err
    said = [rank["bound"] for rank in ran.report["ranks"]]
    assert [f"{sorted(parse(told['cpus']))}\n" for told in said] == [ran.log(0), ran.log(1)]
    assert not parse(said[0]["cpus"]) & parse(said[1]["cpus"])
    assert "runtime.affinity.numa=exclusive" in (launching.output / "turbo" / "report.md").read_text()
