# SPDX-License-Identifier: Apache-2.0
"""An agent that is started before the settings are composed, and imports torch meanwhile: both take a second or more.

It becomes the first job's agent. If that job wants another environment, it starts afresh in it, so that nothing which
was read from the environment before differs from an agent that was started for the job.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from turbo_hydra.launch import environment, processes

FLAG = "--early"
# What differs in any case, and what torch does not look at while it is imported.
_UNIMPORTANT = frozenset({processes.PARENT_VARIABLE, processes.RUN_VARIABLE, "OMP_NUM_THREADS"})
# `-m` puts the folder that it is started in first on its path: one without Python files.
_FOLDER = "/"


class _Early:
    """The one agent that may be waiting."""

    process: subprocess.Popen[bytes] | None = None
    pipe: int = -1


def command() -> list[str]:
    """Return how an agent is started; its job's file follows."""
    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    return [sys.executable, *flags, "-m", "turbo_hydra.launch.agent"]


def begin() -> None:
    """Start an agent that waits for its job; it ends when this process does. Only for the main thread."""
    source, _Early.pipe = os.pipe()
    variables = {**environment.inherited(), processes.PARENT_VARIABLE: str(os.getpid())}
    _Early.process = subprocess.Popen(
        [*command(), FLAG, str(source)], cwd=_FOLDER, env=variables, pass_fds=[source], start_new_session=True
    )
    os.close(source)


def take(job: Path, variables: Mapping[str, str]) -> subprocess.Popen[bytes] | None:
    """Hand a job to the agent that waits, and return its process; None if none waits."""
    process, _Early.process = _Early.process, None
    if process is None:
        return None
    told = json.dumps({"job": str(job), "folder": str(job.parent), "environment": dict(variables)}).encode()
    try:
        if process.poll() is not None:
            return None
        # Secrets among the variables go through a pipe, as they do to any child.
        with os.fdopen(_Early.pipe, "wb") as pipe:
            pipe.write(told)
    except BrokenPipeError:
        process.kill()
        process.wait()
        return None
    return process


def drop() -> None:
    """End the agent that waits: no job of this process will need it."""
    process, _Early.process = _Early.process, None
    if process is not None:
        os.close(_Early.pipe)
        process.kill()
        process.wait()


def wait(descriptor: int) -> str | None:
    """Be an agent that waits: import torch, then take on what it is told. Returns the job's file, None for no job."""
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, signal.SIG_DFL)
    processes.die_with_parent(signal.SIGTERM)
    before = dict(os.environ)
    try:
        from turbo_hydra.launch import elastic  # noqa: F401 - imports torch, which is what takes so long
    except ImportError:
        before = {}  # perhaps it can be imported in the job's environment
    with os.fdopen(descriptor, "rb") as pipe:
        text = pipe.read()
    if not text:
        return None
    told = json.loads(text)
    job, wanted = str(told["job"]), {str(name): str(value) for name, value in told["environment"].items()}
    os.chdir(told["folder"])
    if any(before.get(name) != wanted.get(name) for name in {*before, *wanted} - _UNIMPORTANT):
        os.execve(sys.executable, [*command(), job], wanted)
    os.environ.clear()
    os.environ.update(wanted)
    return job
