# SPDX-License-Identifier: Apache-2.0
"""The agent: `python -m turbo_hydra.launch.agent JOB` starts a node's ranks, watches them, and leaves nobody behind.

It stands between the command and the ranks in a session of its own, so that torch and its signal handlers stay out of
the command. Orphaned descendants of the ranks come to it; it ends when the command does.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from turbo_hydra.engine.errors import TurboHydraError
from turbo_hydra.launch import (
    affinity,
    arguments,
    binding,
    caches,
    devices,
    early,
    failures,
    files,
    network,
    nodes,
    outcome,
    paths,
    processes,
    slurm,
    start_method,
    topology,
    watching,
    wrapped,
)
from turbo_hydra.launch.job import Job, JobError, count, setting
from turbo_hydra.launch.timing import START_TIMEOUT

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
# Processes that outlive their rank get this long to end by themselves (an uploader, a logger's service).
GRACE_AFTER_SUCCESS = 3.0
GRACE_AFTER_FAILURE = 0.5


def main(job_path: str, *placed: str) -> int:
    """Run a node's share of a job and return its exit status.

    Parameters
    ----------
    job_path : str
        The job's file.
    *placed : str
        In an allocation of Slurm: `--slurm` and where its nodes meet. Behind `--early` in the job's place, the
        descriptor that tells the job.
    """
    if job_path == early.FLAG:
        told = early.wait(int(placed[0]))
        if told is None:
            return 0
        job_path, placed = told, ()
    for signum in SIGNALS:
        signal.signal(signum, _end_before_the_ranks_start)
    processes.die_with_parent(signal.SIGTERM)
    processes.set_subreaper()
    try:
        job = Job.read(job_path)
        if placed:
            job = slurm.on_node(job, placed[1], os.environ)
        ranks = count(job.runtime, "ranks", 1, least=1)
        start_method.check(job.runtime)
        if job.command is None:
            paths.check_module(paths.script(job))
            arguments.render(job.model)
            nodes.check(job)
            affinity.Settings.read(job.runtime, ranks)
            _check_devices(job, ranks)
        endpoint = setting(job.runtime, "rendezvous.endpoint")
        choice = network.choose(job.runtime, nodes.number_of(job), endpoint, os.environ)
        prepared = caches.prepare(job.runtime, job.cwd, os.environ)
        for warning in [*choice.warnings, *prepared.warnings]:
            watching.say(warning)
        os.environ[binding.PARENT_VARIABLE] = topology.text(os.sched_getaffinity(0))
        try:
            record = _Record(job, nodes.begin_record(job, choice))
            return _launch(job, ranks, choice, record) if job.command is None else _run_command(job, record)
        finally:
            prepared.remove()
    except TurboHydraError as problem:
        watching.say(str(problem))
        return outcome.WRONG_USE


def _end_before_the_ranks_start(signum: int, frame: object) -> None:
    raise SystemExit(128 + signum)


def _check_devices(job: Job, ranks: int) -> None:
    if devices.accelerator(job.runtime) in ("auto", "cpu"):
        return
    torch = _import_torch()
    backend = "hip" if torch.version.hip else "cuda" if torch.version.cuda else None
    devices.check(job.runtime, ranks, torch.__version__, backend, torch.cuda.device_count())


def _import_torch() -> Any:
    try:
        import torch
    except ImportError as problem:
        raise JobError(
            f"the ranks are started by torch, which cannot be imported ({problem}); install turbo_hydra[torch]"
        ) from None
    return torch


def _launch(job: Job, ranks: int, choice: network.Choice, record: _Record) -> int:
    _import_torch()
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.elastic.rendezvous import RendezvousConnectionError, RendezvousTimeoutError

    from turbo_hydra.launch import elastic

    logs = elastic.RankLogs(job, ranks)
    # What torch's agent has to say is for whoever looks into a broken launch; a failure is told once, by us.
    _log_to_file(job.folder / "agents" / f"{nodes.rank_of(job)}.log")
    os.environ[processes.PARENT_VARIABLE] = str(os.getpid())
    failed: list[failures.Failure] = []
    status = 1
    watch = watching.Watch(job, lambda: list(logs.error_files))
    watch.start()
    before = failures.killed_for_memory()
    try:
        elastic.launch(job, ranks, logs, choice.address)
        status = 0
    except ChildFailedError as problem:
        codes = {rank: (failure.exitcode, failure.pid) for rank, failure in problem.failures.items()}
        failed = failures.read_all(codes, logs.error_files, failures.killed_for_memory() > before)
        status = failures.first(failed).status
    except SignalException as stop:
        status = 128 + stop.sigval
    except (RendezvousTimeoutError, RendezvousConnectionError) as problem:
        logging.getLogger(__name__).exception("the nodes did not meet")
        record.trouble = (
            f"the {nodes.number_of(job)} nodes did not meet at {setting(job.runtime, 'rendezvous.endpoint')} within "
            f"{setting(job.runtime, 'rendezvous.timeout', START_TIMEOUT):g} seconds ({type(problem).__name__}); see "
            "that each of them runs and reaches that address, or raise runtime.rendezvous.timeout"
        )
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else 1
    except Exception as problem:
        logging.getLogger(__name__).exception("the launch failed")
        record.trouble = f"the ranks could not be started: {type(problem).__name__}: {problem}"
    finally:
        watch.stop()
        if watch.trouble is not None and not failed:
            status, record.trouble = watch.trouble.status, watch.trouble.sentence
        with _undisturbed():
            left = _end_left_behind(GRACE_AFTER_FAILURE if status else GRACE_AFTER_SUCCESS)
            logs.close()
            record.end(status, failed, left)
    if record.trouble is not None:
        watching.say(record.trouble)
    if failed:
        _tell(failures.first(failed), logs.shown, job)
    return status


def _run_command(job: Job, record: _Record) -> int:
    status = 1
    try:
        status = wrapped.run(job)
    finally:
        with _undisturbed():
            record.end(status, [], _end_left_behind(GRACE_AFTER_FAILURE if status else GRACE_AFTER_SUCCESS))
    return status


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Finish what is bounded in time anyway: only SIGKILL, which the command sends the third time, ends it."""
    for signum in SIGNALS:
        signal.signal(signum, signal.SIG_IGN)
    yield


def _end_left_behind(grace: float) -> list[int]:
    me = os.getpid()
    return processes.end_all(lambda: processes.descendants(me), processes.reap, grace)


class _Record:
    """What this node's agent tells of itself, in the run's folder."""

    def __init__(self, job: Job, begun: dict[str, Any]) -> None:
        self.trouble: str | None = None
        self._path = job.folder / "agents" / f"{nodes.rank_of(job)}.json"
        self._begun = begun

    def end(self, status: int, failed: list[failures.Failure], left: list[int]) -> None:
        """Write how it ended."""
        data = {
            **self._begun,
            "status": status,
            "ended": time.time(),
            "first_failure": failures.first(failed).to_dict() if failed else None,
            "trouble": self.trouble,
            "ranks": {str(failure.rank): {"pid": failure.pid, "returncode": failure.returncode} for failure in failed},
            "left_behind": left,
        }
        try:
            files.write_json(self._path, data)
        except OSError as problem:
            watching.say(f"cannot write the agent's record: {problem}")


def _tell(failure: failures.Failure, shown: set[int], job: Job) -> None:
    """Say which rank failed; with its traceback, unless the rank's own words are on the terminal already."""
    if failure.traceback and failure.rank not in shown:
        sys.stderr.write(failure.traceback)
    watching.say(f"{failure.sentence()}; its logs are in {job.rank_folder(failure.rank)}")


def _log_to_file(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # A disk that fills up makes no noise on the terminal for each line that it has no room for.
    logging.raiseExceptions = False
    logging.basicConfig(filename=path, level=logging.INFO, force=True, format="%(asctime)s %(name)s %(message)s")
    for name, logger in list(logging.root.manager.loggerDict.items()):
        if isinstance(logger, logging.Logger) and name.partition(".")[0] == "torch":
            # torch gives its loggers handlers of their own, which write to the terminal.
            logger.handlers.clear()
            logger.propagate = True


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
