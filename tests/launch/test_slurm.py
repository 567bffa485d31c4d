# SPDX-License-Identifier: Apache-2.0
"""A run through Slurm: a real munged, slurmctld and two slurmd on this machine, started for these tests."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from turbo_hydra.launch import network, slurm
from turbo_hydra.launch.job import Job, JobError

if TYPE_CHECKING:
    from tests.launch.conftest import Launching

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scontrol", "scancel", "srun")


def job(**settings: Any) -> Job:
    runtime = {"slurm": {"enabled": True, **settings}, "nodes": 2}
    return Job(run_id="r", output_dir="/shared/run 1", cwd="/", model={"name": "m", "entry": "s.py"}, runtime=runtime)


def test_the_script_can_be_read() -> None:
    options = {"partition": "gpu", "gpus_per_node": 8, "exclusive": True, "comment": "two words", "qos": None}
    lines = slurm.script(job(options=options, setup=["module load x"])).splitlines()
    assert lines[0] == "#!/bin/bash"
    assert {
        *("#SBATCH --job-name=m", "#SBATCH --nodes=2", "#SBATCH --ntasks-per-node=1", "#SBATCH --partition=gpu"),
        *("#SBATCH --gpus-per-node=8", "#SBATCH --exclusive", "#SBATCH --comment='two words'", "module load x"),
        "#SBATCH --output='/shared/run 1/turbo/slurm.log'",
    } <= set(lines)
    assert not any("qos" in line for line in lines)
    assert lines[-1].endswith("-m turbo_hydra.launch.agent '/shared/run 1/turbo/job.json' --slurm \"$head:$port\"")


def test_the_script_is_one_that_bash_accepts(tmp_path: Path) -> None:
    path = tmp_path / "sbatch.sh"
    path.write_text(slurm.script(job()))
    assert subprocess.run(["bash", "-n", path], check=False).returncode == 0


@pytest.mark.parametrize(
    "wrong", [{"options": {"nodes": 4}}, {"options": {"a b": 1}}, {"options": [1]}, {"setup": "x"}]
)
def test_what_is_no_option_of_sbatch_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(JobError, match=r"runtime\.slurm"):
        slurm.script(job(**wrong))


def test_each_node_of_an_allocation_knows_its_number(launching: Launching) -> None:
    made = launching.job("", runtime={"nodes": 2})
    placed = slurm.on_node(made, "head:29407", {"SLURM_NODEID": "1"})
    assert placed.runtime["node_rank"] == 1
    assert placed.runtime["rendezvous"]["endpoint"] == "head:29407"
    assert Job.read(placed.path) == placed
    named = launching.job("", runtime={"rendezvous": {"endpoint": "mine:1"}})
    assert slurm.on_node(named, "head:2", {}).runtime["rendezvous"]["endpoint"] == "mine:1"


def free_ports(count: int) -> list[int]:
    """Return ports that nobody listens on, in a row, for slurmd's."""
    for start in range(30100, 40000, 7):
        with ExitStack() as stack:
            try:
                for port in range(start, start + count):
                    stack.enter_context(closing(socket.socket())).bind(("", port))
            except OSError:
                continue
            return list(range(start, start + count))
    raise AssertionError("no free ports")


def settings(folder: Path, ports: list[int]) -> str:
    host = socket.gethostname()
    return f"""\
ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SchedulerType=sched/builtin
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=5
InactiveLimit=0
NodeName=node[1-2] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{ports[1]}-{ports[2]}] CPUs=1 State=UNKNOWN
PartitionName=tests Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Start a cluster of two nodes; returns what finds it."""
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing or os.geteuid() != 0:
        pytest.skip(f"needs root and Debian's munge, slurmctld, slurmd, slurm-client; missing: {', '.join(missing)}")
    folder = tmp_path_factory.mktemp("slurm")
    folder.chmod(0o755)
    for name in ("state", "spool-node1", "spool-node2"):
        (folder / name).mkdir()
    key = folder / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o400)
    (folder / "slurm.conf").write_text(settings(folder, free_ports(3)))
    found = {"SLURM_CONF": str(folder / "slurm.conf")}
    environment = {**os.environ, **found}
    munged = [
        *("munged", "--foreground", "--force", f"--key-file={key}", f"--socket={folder}/munge.socket"),
        *(f"--pid-file={folder}/munged.pid", f"--log-file={folder}/munged.log", f"--seed-file={folder}/munged.seed"),
    ]
    commands = [munged, ["slurmctld", "-D"], ["slurmd", "-D", "-N", "node1"], ["slurmd", "-D", "-N", "node2"]]
    started: list[subprocess.Popen[bytes]] = []
    log = (folder / "daemons.log").open("wb")
    try:
        for command in commands:
            started.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True))
            if command is munged:
                wait(lambda: (folder / "munge.socket").exists(), 30, folder)
        idle = ["sinfo", "--noheader", "--states=idle", "--format=%D"]
        wait(lambda: said(idle, environment) == "2", 60, folder)
        yield found
    finally:
        for process in reversed(started):
            process.terminate()
        for process in reversed(started):
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        log.close()


def said(command: list[str], environment: dict[str, str]) -> str:
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False).stdout.strip()


def wait(condition: Any, seconds: float, folder: Path) -> None:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            logs = "\n".join(path.read_text(errors="replace")[-800:] for path in folder.glob("*.log"))
            pytest.fail(f"the cluster did not start within {seconds} seconds:\n{logs}")
        time.sleep(0.1)


def submitted(launching: Launching, text: str, nodes: int = 1, **runtime: Any) -> Job:
    own = next((address for address, name in network.addresses().items() if name != "lo" and ":" not in address), None)
    port = free_ports(1)[0]
    return launching.job(
        text,
        runtime={
            "nodes": nodes,
            "slurm": {"enabled": True, "poll": 0.2},
            # Both nodes are this machine; on a real cluster the first node's name is one that others reach.
            "rendezvous": {"endpoint": f"{own or '127.0.0.1'}:{port}", "timeout": 60},
            "timeouts": {"shutdown": 3},
            **runtime,
        },
    )


TOGETHER = """
import os, torch
import torch.distributed as dist
dist.init_process_group("gloo")
total = torch.tensor([float(dist.get_rank() + 1)])
dist.all_reduce(total)
print("total", int(total), "on", os.environ["SLURMD_NODENAME"], flush=True)
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_two_nodes_train_as_without_slurm(launching: Launching, cluster: dict[str, str]) -> None:
    ran = launching.run(submitted(launching, TOGETHER, nodes=2), **cluster)
    assert ran.status == 0, ran.err + (launching.output / "turbo" / "slurm.log").read_text()
    assert sorted(ran.log(rank).split()[-1] for rank in (0, 1)) == ["node1", "node2"]
    assert "total 3 on" in ran.out
    assert [rank["status"] for rank in ran.report["ranks"]] == ["succeeded", "succeeded"]
    assert [node["status"] for node in ran.report["nodes"]] == [0, 0]
    assert "submitted job" in ran.err
    assert "COMPLETED" in ran.err
    assert os.access(launching.output / "turbo" / "sbatch.sh", os.X_OK)


@pytest.mark.slow
def test_a_ranks_status_comes_through(launching: Launching, cluster: dict[str, str]) -> None:
    ran = launching.run(submitted(launching, "import sys\nsys.exit(7)\n"), **cluster)
    assert ran.status == 7, ran.err
    assert ran.report["failure"]["status"] == 7


SLEEPING = "import pathlib, time\npathlib.Path('ready').touch()\ntime.sleep(600)\n"


@pytest.mark.slow
def test_a_job_that_somebody_cancels_is_told(launching: Launching, cluster: dict[str, str]) -> None:
    command = launching.start(submitted(launching, SLEEPING), **cluster)
    launching.until((launching.folder / "ready").exists)
    environment = {**os.environ, **cluster}
    number = said(["squeue", "--noheader", "--format=%A"], environment)
    subprocess.run(["scancel", number], env=environment, check=True)
    ran = launching.finish(command)
    assert ran.status == 143
    assert f"Slurm ended job {number}: CANCELLED" in ran.err


@pytest.mark.slow
def test_a_signal_to_the_command_cancels_the_job(launching: Launching, cluster: dict[str, str]) -> None:
    command = launching.start(submitted(launching, SLEEPING), **cluster)
    launching.until((launching.folder / "ready").exists)
    command.send_signal(signal.SIGINT)
    assert launching.finish(command).status == 130
    assert said(["squeue", "--noheader"], {**os.environ, **cluster}) == ""


@pytest.mark.slow
def test_an_option_that_slurm_does_not_know_ends_with_2(launching: Launching, cluster: dict[str, str]) -> None:
    job = submitted(launching, "", slurm={"enabled": True, "options": {"partition": "moon"}})
    ran = launching.run(job, **cluster)
    assert ran.status == 2
    assert "Slurm refused" in ran.err
    assert "moon" in ran.err or "partition" in ran.err
