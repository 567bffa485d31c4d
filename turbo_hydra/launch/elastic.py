# SPDX-License-Identifier: Apache-2.0
"""torch's elastic agent, set up for a job: rendezvous, logs in the run's folder, bounded ends."""

from __future__ import annotations

import inspect
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import torch
from torch.distributed.elastic.multiprocessing import LogsSpecs, Std
from torch.distributed.elastic.multiprocessing.api import LogsDest, PContext
from torch.distributed.elastic.rendezvous import RendezvousConnectionError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from turbo_hydra.launch import affinity, nodes, topology, watching
from turbo_hydra.launch.console import Follower
from turbo_hydra.launch.job import Job, JobError, count, number, setting
from turbo_hydra.launch.timing import SHUTDOWN_TIMEOUT, START_TIMEOUT

STREAMS = ("stdout", "stderr")
_DRAIN_SECONDS = 5.0


class RankLogs(LogsSpecs):
    """Logs as the run's folder has them: `ranks/<rank>/{stdout.log, stderr.log, error.json}`.

    Parameters
    ----------
    job : Job
        The run. `runtime.logs.redirect=none` leaves the ranks on the terminal itself, without files.
    ranks : int
        How many there are.

    Attributes
    ----------
    shown : set of int
        Global ranks whose output is shown on the terminal.

    Raises
    ------
    JobError
        If a setting under `runtime.logs` is none of those known.
    """

    def __init__(self, job: Job, ranks: int) -> None:
        redirect = setting(job.runtime, "logs.redirect", "all")
        if redirect not in ("all", "none"):
            raise JobError(f"'runtime.logs.redirect' must be all or none, found {redirect!r}")
        super().__init__(str(job.folder / "ranks"), Std.ALL if redirect == "all" else Std.NONE)
        self._job = job
        self._to_files = redirect == "all"
        self.shown = shown_ranks(job, ranks) if self._to_files else set(range(ranks * nodes.number_of(job)))
        self._followers: list[Follower] = []
        self.error_files: dict[int, Path] = {}

    @property
    def root_log_dir(self) -> str:
        """The folder above those of the ranks."""
        return str(self._job.folder / "ranks")

    def reify(self, envs: dict[int, dict[str, str]]) -> LogsDest:
        """Make the folders of the ranks that are about to start, and follow the logs of those that are shown."""
        self.close()
        logs = LogsDest()
        for local_rank, environment in envs.items():
            rank = int(environment["RANK"])
            folder = self._job.rank_folder(rank)
            folder.mkdir(parents=True, exist_ok=True)
            _set_aside(folder, int(environment.get("TORCHELASTIC_RESTART_COUNT", "0")))
            # An empty name leaves the stream where it is.
            logs.stdouts[local_rank] = str(folder / "stdout.log") if self._to_files else ""
            logs.stderrs[local_rank] = str(folder / "stderr.log") if self._to_files else ""
            self.error_files[rank] = folder / "error.json"
            logs.error_files[local_rank] = str(self.error_files[rank])
            environment["TORCHELASTIC_ERROR_FILE"] = logs.error_files[local_rank]
            if self._to_files and rank in self.shown:
                self._follow(folder, rank)
        return logs

    def _follow(self, folder: Path, rank: int) -> None:
        prefix = b"" if len(self.shown) == 1 else b"[rank %d] " % rank
        for descriptor, stream in enumerate(STREAMS, start=1):
            follower = Follower(folder / f"{stream}.log", descriptor, prefix)
            follower.start()
            self._followers.append(follower)

    def close(self) -> None:
        """Show what was written until now, and follow no longer."""
        for follower in self._followers:
            follower.stop(_DRAIN_SECONDS)
        self._followers.clear()


def _set_aside(folder: Path, restarts: int) -> None:
    # Opening truncates: the logs of the attempt before keep its number.
    for name in (*(f"{stream}.log" for stream in STREAMS), "error.json"):
        path = folder / name
        if restarts and path.exists():
            path.rename(folder / f"attempt{restarts - 1}.{name}")
        else:
            path.unlink(missing_ok=True)


def shown_ranks(job: Job, ranks: int) -> set[int]:
    """Return the ranks whose output is shown: `runtime.logs.tee` is a list of ranks, `all` or `none`; default rank 0.

    Raises
    ------
    JobError
        If it is anything else.
    """
    given = setting(job.runtime, "logs.tee", [0])
    if given == "all":
        return set(range(ranks * nodes.number_of(job)))
    if given == "none":
        return set()
    if not isinstance(given, list) or not all(isinstance(rank, int) and not isinstance(rank, bool) for rank in given):
        raise JobError(f"'runtime.logs.tee' must be a list of ranks, all or none, found {given!r}")
    return set(given)


def bound_shutdown(seconds: float) -> None:
    """Let ranks that ignore SIGTERM live no longer than `seconds` when another has failed.

    torch waits 30 seconds there whatever its option says (only signals honour it).
    """
    if "timeout" not in inspect.signature(PContext.close).parameters:
        return
    close = PContext.close

    def bounded(self: PContext, death_sig: signal.Signals | None = None, timeout: int = 30) -> None:
        patience = min(timeout, seconds)
        # Whoever is still there just before SIGKILL shows where it hangs.
        timer = threading.Timer(max(patience - 1.0, patience * 0.7), watching.dump_stacks)
        timer.daemon = True
        timer.start()
        try:
            # torch calls it an int and passes it to waits that take fractions.
            close(self, death_sig, patience)  # type: ignore[arg-type]
        finally:
            timer.cancel()

    PContext.close = bounded  # type: ignore[method-assign]


def launch(job: Job, ranks: int, logs: RankLogs, address: str | None = None) -> None:
    """Start the ranks and wait for them.

    Parameters
    ----------
    job : Job
        The run.
    ranks : int
        How many there are on this node.
    logs : RankLogs
        Where they write.
    address : str or None
        This node's address for the others.

    Raises
    ------
    torch.distributed.elastic.multiprocessing.errors.ChildFailedError
        If a rank failed and no restart is left.
    torch.distributed.elastic.multiprocessing.SignalException
        If this process was told to end.
    """
    shutdown = number(job.runtime, "timeouts.shutdown", SHUTDOWN_TIMEOUT)
    bound_shutdown(shutdown)
    options: dict[str, Any] = {}
    if "shutdown_timeout" in inspect.signature(LaunchConfig).parameters:
        options["shutdown_timeout"] = int(shutdown)
    numa = _numa_options(job, ranks)
    if numa is not None:
        options["numa_options"] = numa
    several = nodes.number_of(job)
    meeting: dict[str, Any] = {"timeout": int(number(job.runtime, "timeouts.start", START_TIMEOUT))}
    # Port 0: the system chooses one, so that two runs on a machine do not meet.
    endpoint, local = "localhost:0", address or "localhost"
    if several > 1:
        wait = max(int(number(job.runtime, "rendezvous.timeout", START_TIMEOUT)), 1)
        meeting = {"is_host": nodes.is_host(job), "join_timeout": wait, "read_timeout": wait}
        endpoint = str(setting(job.runtime, "rendezvous.endpoint"))

    def start() -> None:
        # Without an address of its own a node names itself, which another may resolve to elsewhere.
        config = LaunchConfig(
            min_nodes=several,
            max_nodes=several,
            nproc_per_node=ranks,
            logs_specs=logs,
            run_id=job.run_id,
            rdzv_backend="c10d",
            rdzv_endpoint=endpoint,
            rdzv_configs=meeting,
            local_addr=local if several == 1 else address,
            max_restarts=count(job.runtime, "restarts", 0),
            monitor_interval=0.1,
            **options,
        )
        elastic_launch(config, sys.executable)(*_rank_command(job))

    try:
        start()
    except RendezvousConnectionError:
        # Another agent of this very host keeps the store already, as two nodes of a scheduler on one machine do.
        if not meeting.get("is_host") or setting(job.runtime, "rendezvous.is_host") is not None:
            raise
        meeting["is_host"] = False
        start()


def _numa_options(job: Job, ranks: int) -> Any:
    """Return what has torch bind the ranks, where it can: it asks the driver for the devices, and calls numactl."""
    if "numa_options" not in inspect.signature(LaunchConfig).parameters:
        return None
    wanted = affinity.Settings.read(job.runtime, ranks)
    if not wanted.of_torch or setting(job.runtime, "accelerator") == "cpu" or not torch.cuda.is_available():
        return None
    here = topology.text(os.sched_getaffinity(0))
    numactl = shutil.which("numactl")
    if numactl is None or torch.cuda.device_count() < ranks:
        return None
    if subprocess.run([numactl, f"--physcpubind={here}", "true"], capture_output=True, check=False).returncode:
        return None
    from torch.numa.binding import AffinityMode, NumaOptions

    return NumaOptions(AffinityMode(wanted.mode), should_fall_back_if_binding_fails=True)


def _rank_command(job: Job) -> list[str]:
    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    # torch substitutes ${...} in the arguments; a dollar sign of the path's own must survive that.
    path = os.fspath(job.path).replace("$", "$$")
    return ["-u", *flags, "-m", "turbo_hydra.launch.rank", path]
