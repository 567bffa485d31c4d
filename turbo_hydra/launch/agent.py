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
from turbo_hydra.launch import arguments, caches, devices, failures, files, outcome, paths, processes, unavailable
from turbo_hydra.launch.job import Job, JobError, count

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
# Processes that outlive their rank get this long to end by themselves (an uploader, a logger's service).
GRACE_AFTER_SUCCESS = 3.0
GRACE_AFTER_FAILURE = 0.5


def main(job_path: str) -> int:
    """Run a node's share of a job and return its exit status."""
    for signum in SIGNALS:
        signal.signal(signum, _end_before_the_ranks_start)
    processes.die_with_parent(signal.SIGTERM)
    processes.set_subreaper()
    try:
        job = Job.read(job_path)
        ranks = count(job.runtime, "ranks", 1, least=1)
        paths.check_module(paths.script(job))
        arguments.render(job.model)
        _check_devices(job, ranks)
        for warning in [*unavailable.check(job.runtime), *caches.prepare(job.runtime, job.cwd, os.environ)]:
            _say(warning)
        return _launch(job, ranks)
    except TurboHydraError as problem:
        _say(str(problem))
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


def _launch(job: Job, ranks: int) -> int:
    _import_torch()
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    from turbo_hydra.launch import elastic

    logs = elastic.RankLogs(job, ranks)
    # What torch's agent has to say is for whoever looks into a broken launch; a failure is told once, by us.
    _log_to_file(job.folder / "agents" / f"{_node(job)}.log")
    os.environ[processes.PARENT_VARIABLE] = str(os.getpid())
    failed: list[failures.Failure] = []
    status = 1
    try:
        elastic.launch(job, ranks, logs)
        status = 0
    except ChildFailedError as problem:
        codes = {rank: (failure.exitcode, failure.pid) for rank, failure in problem.failures.items()}
        failed = failures.read_all(codes, logs.error_files)
        status = failures.first(failed).status
    except SignalException as stop:
        status = 128 + stop.sigval
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else 1
    except Exception as problem:
        logging.getLogger(__name__).exception("the launch failed")
        _say(f"the ranks could not be started: {type(problem).__name__}: {problem}")
    finally:
        with _undisturbed():
            left = _end_left_behind(GRACE_AFTER_FAILURE if status else GRACE_AFTER_SUCCESS)
            logs.close()
            _record(job, status, failed, left)
    if failed:
        _tell(failures.first(failed), logs.shown, job)
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


def _node(job: Job) -> int:
    return count(job.runtime, "node_rank", 0)


def _record(job: Job, status: int, failed: list[failures.Failure], left: list[int]) -> None:
    data = {
        "node": _node(job),
        "host": os.uname().nodename,
        "pid": os.getpid(),
        "status": status,
        "ended": time.time(),
        "first_failure": failures.first(failed).to_dict() if failed else None,
        "ranks": {str(failure.rank): {"pid": failure.pid, "returncode": failure.returncode} for failure in failed},
        "left_behind": left,
    }
    try:
        files.write_json(job.folder / "agents" / f"{_node(job)}.json", data)
    except OSError as problem:
        _say(f"cannot write the agent's record: {problem}")


def _tell(failure: failures.Failure, shown: set[int], job: Job) -> None:
    """Say which rank failed; with its traceback, unless the rank's own words are on the terminal already."""
    if failure.traceback and failure.rank not in shown:
        sys.stderr.write(failure.traceback)
    _say(f"{failure.sentence()}; its logs are in {job.rank_folder(failure.rank)}")


def _say(text: str) -> None:
    sys.stderr.write(f"turbo_hydra: {text}\n")
    sys.stderr.flush()


def _log_to_file(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    logging.basicConfig(filename=path, level=logging.INFO, force=True, format="%(asctime)s %(name)s %(message)s")
    for name, logger in list(logging.root.manager.loggerDict.items()):
        if isinstance(logger, logging.Logger) and name.partition(".")[0] == "torch":
            # torch gives its loggers handlers of their own, which write to the terminal.
            logger.handlers.clear()
            logger.propagate = True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
