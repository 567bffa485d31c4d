# SPDX-License-Identifier: Apache-2.0
"""The agent's work for a command of the user's own: its launcher starts the ranks, and nobody of it is left behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Collection
from types import FrameType

from turbo_hydra.launch import commands, outcome, processes
from turbo_hydra.launch.job import Job, JobError, number
from turbo_hydra.launch.main_module import SAFE_PATH
from turbo_hydra.launch.timing import SHUTDOWN_TIMEOUT

FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def run(job: Job) -> int:
    """Run a job's command to its end and return its exit status.

    A signal to this process goes to the command; what has not ended `runtime.timeouts.shutdown` seconds later is
    killed.

    Raises
    ------
    JobError
        If the command cannot be rewritten or started.
    """
    # What the user typed names files from where the user stood.
    os.chdir(job.cwd)
    words = commands.rewrite(job.command or (), os.fspath(job.path))
    patience = number(job.runtime, "timeouts.shutdown", SHUTDOWN_TIMEOUT)
    environment = dict(os.environ)
    environment.pop(processes.PARENT_VARIABLE, None)
    # `-m` would put the user's folder before the standard library while our modules are imported; a rank undoes it.
    environment[SAFE_PATH] = environment.get("PYTHONSAFEPATH", "")
    environment["PYTHONSAFEPATH"] = "1"
    received: list[signal.Signals] = []

    def pass_on(signum: int, frame: FrameType | None) -> None:
        if not received:
            timer = threading.Timer(patience, _kill_all)
            timer.daemon = True
            timer.start()
        received.append(signal.Signals(signum))
        process.send_signal(signum)

    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED)
    try:
        process = subprocess.Popen(words, env=environment, preexec_fn=_in_child(blocked))
    except OSError as problem:
        raise JobError(f"cannot start {words[0]}: {problem.strerror}") from None
    for signum in FORWARDED:
        signal.signal(signum, pass_on)
    signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    returncode = process.wait()
    return 128 + received[0] if received else outcome.from_returncode(returncode)


def _in_child(blocked: Collection[int]) -> Callable[[], None]:
    def prepare() -> None:
        processes.die_with_parent(signal.SIGTERM)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)

    return prepare


def _kill_all() -> None:
    for process in processes.descendants(os.getpid()):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(process, signal.SIGKILL)
