# SPDX-License-Identifier: Apache-2.0
"""A run that Slurm starts: a script to read, its submission, what became of it. srun starts one agent a node."""

from __future__ import annotations

import dataclasses
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from types import FrameType
from typing import Any

from turbo_hydra.launch import arguments, files, nodes, outcome, paths, watching
from turbo_hydra.launch.console import Follower
from turbo_hydra.launch.job import Job, JobError, number, setting

FLAG = "--slurm"
# What a job that Slurm ended by itself gives, where its agent could not say.
_ENDED = {
    "CANCELLED": 128 + signal.SIGTERM,
    "TIMEOUT": 128 + signal.SIGTERM,
    "PREEMPTED": 128 + signal.SIGTERM,
    "DEADLINE": 128 + signal.SIGTERM,
    "OUT_OF_MEMORY": 128 + signal.SIGKILL,
    "NODE_FAIL": 1,
    "BOOT_FAIL": 1,
}
_OVER = {*_ENDED, "COMPLETED", "FAILED"}
_OPTION = re.compile(r"[a-z][a-z0-9-]*")
_OWN = ("nodes", "ntasks-per-node", "output", "parsable", "wait")


def is_wanted(job: Job) -> bool:
    """Tell whether the run goes to Slurm."""
    return bool(setting(job.runtime, "slurm.enabled", False))


def script(job: Job) -> str:
    """Return the text of the sbatch script.

    Raises
    ------
    JobError
        If an option is none of sbatch's, or one that the run itself decides.
    """
    options = setting(job.runtime, "slurm.options", {})
    setup = setting(job.runtime, "slurm.setup", [])
    if not isinstance(options, Mapping):
        raise JobError(f"'runtime.slurm.options' must map options of sbatch to values, found {options!r}")
    if isinstance(setup, str) or not all(isinstance(line, str) for line in setup):
        raise JobError(f"'runtime.slurm.setup' must be a list of shell lines, found {setup!r}")
    own = {
        "job-name": job.model.get("name") or "turbo_hydra",
        "nodes": nodes.number_of(job),
        "ntasks-per-node": 1,
        "output": job.folder / "slurm.log",
        "chdir": job.folder,
    }
    said = {str(name).replace("_", "-"): value for name, value in options.items() if value not in (None, False)}
    for name in said:
        if not _OPTION.fullmatch(name) or name in _OWN:
            raise JobError(
                f"'runtime.slurm.options.{name}' cannot be set: it must be the long name of an option of sbatch, and "
                f"none of {', '.join(_OWN)}"
            )
    lines = [
        f"#SBATCH --{name}" if value is True else f"#SBATCH --{name}={shlex.quote(str(value))}"
        for name, value in {**own, **said}.items()
    ]
    agent = [sys.executable, "-m", "turbo_hydra.launch.agent", os.fspath(job.path), FLAG]
    return "\n".join(
        [
            "#!/bin/bash",
            *lines,
            "# Written by turbo-train for one run; one agent a node starts that node's ranks.",
            *setup,
            'head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
            "port=$((29400 + SLURM_JOB_ID % 1000))",
            # srun takes over all of the allocation but this.
            "exec srun --kill-on-bad-exit=0 ${SLURM_CPUS_PER_TASK:+--cpus-per-task=$SLURM_CPUS_PER_TASK} \\",
            f'  {shlex.join(agent)} "$head:$port"',
            "",
        ]
    )


def on_node(job: Job, endpoint: str, environment: Mapping[str, str]) -> Job:
    """Return the job as the agent on one node of an allocation runs it."""
    node = int(environment.get("SLURM_NODEID", "0"))
    meeting = {**(job.runtime.get("rendezvous") or {})}
    meeting["endpoint"] = meeting.get("endpoint") or endpoint
    placed = dataclasses.replace(job, runtime={**job.runtime, "node_rank": node, "rendezvous": meeting})
    if node or placed.path == job.path:
        placed.write()
    return placed


class Submission:
    """A run while Slurm has it.

    Parameters
    ----------
    job : Job
        The run.
    variables : mapping
        What its agents find in their environment.

    Attributes
    ----------
    received : signal.Signals or None
        The signal that this process was told to end by.

    Raises
    ------
    JobError
        If the settings are wrong, or Slurm does not take the job.
    """

    def __init__(self, job: Job, variables: Mapping[str, str]) -> None:
        self.received: signal.Signals | None = None
        self._job = job
        paths.script(job)
        arguments.render(job.model)
        path = job.folder / "sbatch.sh"
        files.write_text(path, script(job))
        path.chmod(0o700)
        if shutil.which("sbatch") is None:
            raise JobError(f"runtime=slurm needs the program sbatch, which is not here; the script is {path}")
        told = _call("sbatch", "--parsable", str(path), env=dict(variables))
        if told.returncode:
            raise JobError(f"Slurm refused {path}: {' '.join(told.stderr.split())}")
        self.number = told.stdout.strip().partition(";")[0]
        watching.say(f"submitted job {self.number} to Slurm: {path}")

    def wait(self) -> int:
        """Wait until the job has ended, showing what its agents print, and return its exit status."""
        shown = Follower(self._job.folder / "slurm.log", sys.stdout.fileno())
        shown.start()
        before: dict[signal.Signals, Any] = {}
        if threading.current_thread() is threading.main_thread():
            for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                before[signum] = signal.signal(signum, self._cancel)
        try:
            state, details = self._watch(number(self._job.runtime, "slurm.poll", 2.0, least=0.1))
        finally:
            for signum, handler in before.items():
                signal.signal(signum, handler)
            shown.stop(5.0)
        return self._status(state, details)

    def _cancel(self, signum: int, frame: FrameType | None) -> None:
        self.received = signal.Signals(signum)
        # Its processes get SIGTERM, and SIGKILL when Slurm's KillWait is over.
        subprocess.Popen(["scancel", self.number])

    def _watch(self, poll: float) -> tuple[str, dict[str, str]]:
        before = ""
        while True:
            state, details = self.state()
            told = f"{state} {details.get('NodeList', '')}".replace("(null)", "").strip()
            if state == "PENDING":
                told += f" ({details.get('Reason', 'unknown')})"
            if told != before:
                watching.say(f"job {self.number}: {told}")
                before = told
            if state in _OVER:
                return state, details
            time.sleep(poll)

    def state(self) -> tuple[str, dict[str, str]]:
        """Return the job's state, and what else Slurm says of it; a job that it has forgotten is `UNKNOWN`.

        squeue leaves a job out as soon as it has ended; scontrol remembers it for some minutes.
        """
        told = _call("squeue", "--noheader", "--jobs", self.number, "--states=all", "--format=%T")
        shown = _call("scontrol", "--oneliner", "show", "job", self.number)
        details = dict(item.split("=", 1) for item in shown.stdout.split() if "=" in item)
        state = told.stdout.strip().partition("+")[0] or details.get("JobState", "")
        if state:
            return state, details
        if "Invalid job id" in told.stderr + shown.stderr:
            return ("COMPLETED" if self._recorded() is not None else "NODE_FAIL"), details
        return "UNKNOWN", details  # slurmctld does not answer; it may come back

    def _recorded(self) -> int | None:
        records = [files.read_json(path) for path in sorted((self._job.folder / "agents").glob("*.json"))]
        ends = [record["status"] for record in records if isinstance(record, dict) and record.get("status") is not None]
        return max(ends) if ends else None

    def _status(self, state: str, details: Mapping[str, str]) -> int:
        recorded = self._recorded()
        if state in _ENDED:
            watching.say(f"Slurm ended job {self.number}: {state}, reason {details.get('Reason', 'unknown')}")
            return _ENDED[state]
        if recorded is not None:
            return recorded
        code, _, signum = details.get("ExitCode", "1:0").partition(":")
        status = 128 + int(signum) if signum not in ("", "0") else int(code)
        if status:
            log = self._job.folder / "slurm.log"
            watching.say(
                f"job {self.number} ended with {outcome.describe(status)} before an agent could say why; see {log}"
            )
        return status


def _call(*command: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, env=env, check=False, start_new_session=True)
