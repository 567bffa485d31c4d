# SPDX-License-Identifier: Apache-2.0
"""A run over two nodes: two network namespaces of this machine, each with an address and a loopback of its own."""

from __future__ import annotations

import dataclasses
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from turbo_hydra.launch.job import Job

if TYPE_CHECKING:
    from tests.launch.conftest import Launching, Ran

pytestmark = [pytest.mark.slow]

ADDRESSES = ("10.213.7.1", "10.213.7.2")
ENDPOINT = f"{ADDRESSES[0]}:29471"
# An address for documentation: whoever believes the host's name waits for somebody who never answers.
ELSEWHERE = "198.51.100.7"


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


@dataclass
class Hosts:
    """The namespaces, and how the nodes' commands are started in them."""

    launching: Launching
    names: tuple[str, str]

    def job(self, node: int, text: str, ranks: int = 1, **groups: Any) -> Job:
        runtime = {
            "nodes": 2,
            "node_rank": node,
            "rendezvous": {"endpoint": ENDPOINT, "timeout": 60},
            "timeouts": {"shutdown": 3},
            "logs": {"tee": "none"},
            **groups.pop("runtime", {}),
        }
        return self.launching.job(text, ranks=ranks, runtime=runtime, **groups)

    def start(self, job: Job, **variables: str) -> subprocess.Popen[str]:
        name = self.names[job.runtime["node_rank"]]
        return self.launching.start(job, "ip", "netns", "exec", name, **variables)

    def finish(self, command: subprocess.Popen[str]) -> Ran:
        return self.launching.finish(command, 150)

    def kill_all_of(self, node: int) -> None:
        """End a node as a power cut does: nobody there says goodbye."""
        listed = subprocess.run(["ip", "netns", "pids", self.names[node]], capture_output=True, text=True, check=True)
        for process in listed.stdout.split():
            os.kill(int(process), signal.SIGKILL)


@pytest.fixture
def hosts(launching: Launching) -> Iterator[Hosts]:
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and the program ip (Debian: iproute2)")
    tag = launching.mark[:6]
    names = (f"turbo-a-{tag}", f"turbo-b-{tag}")
    made: list[str] = []
    try:
        try:
            for name in names:
                ip("netns", "add", name)
                made.append(name)
            ip("link", "add", f"va{tag}", "netns", names[0], "type", "veth", "peer", f"vb{tag}", "netns", names[1])
            for name, link, address in zip(names, (f"va{tag}", f"vb{tag}"), ADDRESSES, strict=True):
                ip("-n", name, "address", "add", f"{address}/24", "dev", link)
                for up in ("lo", link):
                    ip("-n", name, "link", "set", up, "up")
                folder = Path("/etc/netns", name)
                folder.mkdir(parents=True)
                (folder / "hosts").write_text(f"127.0.0.1 localhost\n{ELSEWHERE} {socket.gethostname()}\n")
        except subprocess.CalledProcessError as problem:
            pytest.skip(f"no network namespaces here: {problem.stderr.strip()}")
        yield Hosts(launching, names)
        launching.until(lambda: not launching.alive(), 60)
    finally:
        for name in made:
            subprocess.run(["ip", "netns", "delete", name], check=False)
            shutil.rmtree(Path("/etc/netns", name), ignore_errors=True)


TOGETHER = """
import os, torch
import torch.distributed as dist
dist.init_process_group("gloo")
total = torch.tensor([float(dist.get_rank() + 1)])
dist.all_reduce(total)
print(int(total), os.environ["GLOO_SOCKET_IFNAME"], os.environ["NCCL_SOCKET_IFNAME"], os.environ["GROUP_RANK"])
dist.destroy_process_group()
"""


def test_two_nodes_of_two_ranks_make_one_run(hosts: Hosts) -> None:
    # The one that keeps the store comes last.
    second = hosts.start(hosts.job(1, TOGETHER, ranks=2))
    record = hosts.launching.output / "turbo" / "agents" / "1.json"
    hosts.launching.until(record.exists)
    first = hosts.start(hosts.job(0, TOGETHER, ranks=2))
    ran, other = hosts.finish(first), hosts.finish(second)
    assert (ran.status, other.status) == (0, 0), ran.err + other.err
    said = sorted(ran.log(rank) for rank in range(4))
    tag = hosts.launching.mark[:6]
    assert [line.split()[0] for line in said] == ["10"] * 4
    assert {tuple(line.split()[1:3]) for line in said} == {(f"v{x}{tag}", f"=v{x}{tag}") for x in "ab"}
    report = ran.report
    assert [rank["status"] for rank in report["ranks"]] == ["succeeded"] * 4
    assert {node["network"]["address"] for node in report["nodes"]} == set(ADDRESSES)
    assert {node["network"]["interface"] for node in report["nodes"]} == {f"va{tag}", f"vb{tag}"}
    assert report["disagreements"] == []
    assert len(list(hosts.launching.output.glob("turbo/**/report.json"))) == 5  # one a rank, one of the run


def test_a_node_that_never_comes(hosts: Hosts) -> None:
    job = hosts.job(0, TOGETHER, runtime={"rendezvous": {"endpoint": ENDPOINT, "timeout": 8}})
    start = time.monotonic()
    ran = hosts.finish(hosts.start(job))
    assert ran.status == 1
    assert time.monotonic() - start < 60
    assert f"the 2 nodes did not meet at {ENDPOINT} within 8 seconds" in ran.err
    assert "runtime.rendezvous.timeout" in ran.err


ALONE = """
import pathlib, os, sys, time
pathlib.Path(f"ready{os.environ['GROUP_RANK']}").touch()
print(os.environ["RANK"], flush=True)
{extra}
time.sleep(600)
"""


def both(hosts: Hosts, text: str, **runtime: Any) -> list[subprocess.Popen[str]]:
    started = [hosts.start(hosts.job(node, text, runtime=runtime)) for node in (0, 1)]
    hosts.launching.until(lambda: len(list(hosts.launching.folder.glob("ready*"))) == 2, 120)
    return started


def test_a_node_that_loses_its_power(hosts: Hosts) -> None:
    first, second = both(hosts, ALONE.replace("{extra}", ""), rendezvous={"endpoint": ENDPOINT, "timeout": 12})
    hosts.kill_all_of(1)
    second.communicate()
    start = time.monotonic()
    ran = hosts.finish(first)
    assert ran.status == 1
    assert time.monotonic() - start < 60
    assert "node 1 has given no sign of life for 12 seconds" in ran.err
    assert sorted(rank["status"] for rank in ran.report["ranks"]) == ["killed", "killed"]


def test_a_rank_that_fails_on_one_node_ends_the_other_with_its_status(hosts: Hosts) -> None:
    failing = f"""
import socket
if os.environ["MASTER_ADDR"] not in {ADDRESSES!r}:
    sys.exit(9)
if open("/proc/net/fib_trie").read().count(" {ADDRESSES[1]}\\n"):
    while len(list(pathlib.Path().glob("ready*"))) < 2: time.sleep(0.01)
    sys.exit(7)
"""
    first, second = both(hosts, ALONE.replace("{extra}", failing))
    ran, other = hosts.finish(first), hosts.finish(second)
    assert (ran.status, other.status) == (7, 7)
    assert "node 1 (" in ran.err
    assert ran.report["exit_status"] == 7
    assert ran.report["failure"]["status"] == 7


def test_a_signal_to_one_node_ends_both(hosts: Hosts) -> None:
    first, second = both(hosts, ALONE.replace("{extra}", ""))
    second.terminate()
    other = hosts.finish(second)
    ran = hosts.finish(first)
    assert other.status == 143
    assert ran.status == 143
    assert "node 1" in ran.err


OPTIMIZATION = {
    "schema_version": "turbo_hydra/optimization-config/v1",
    "kind": "OptimizationConfig",
    "metadata": {"id": "demo", "version": "1.0.0", "description": "for tests"},
    "catalogs": ["demo_catalog"],
    "groups": {"demo": {"fast": True}},
    "force": ["demo.fast"],
}


def test_a_node_with_another_version_of_a_module_is_named(hosts: Hosts) -> None:
    launching = hosts.launching
    launching.script('from turbo_hydra import group, replace\ngroup("demo.fast", replace("lib.f", "quick.f"))\n',
                     "demo_catalog.py")  # fmt: skip
    launching.script("def f(x): return x\n", "quick.py")
    launching.script("def f(x): return x\n", "here/lib.py")
    launching.script("def f(x): return x + 0\n", "there/lib.py")
    jobs = [hosts.job(node, "from lib import f\nf(1)\n", optimization=OPTIMIZATION) for node in (0, 1)]
    model = [{**job.model, "pythonpath": [place]} for job, place in zip(jobs, ("here", "there"), strict=True)]
    started = [hosts.start(dataclasses.replace(job, model=what)) for job, what in zip(jobs, model, strict=True)]
    ran, _ = [hosts.finish(command) for command in started]
    assert ran.status == 0, ran.err
    fields = {item["field"]: item["values"] for item in ran.report["disagreements"]}
    assert len({fields["modules.lib"][rank] for rank in "01"}) == 2
    assert len({str(fields["execution.demo.fast.lib.f.place"][rank]) for rank in "01"}) == 2
    assert "ranks disagree on modules.lib: rank 0: " in ran.out
