# SPDX-License-Identifier: Apache-2.0
"""The command's side of a run: starts the agent, passes signals on, merges what the ranks reported."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

from turbo_hydra.engine.errors import TurboHydraError
from turbo_hydra.launch import early, environment, files, merging, nodes, outcome, processes, secrets, showing, slurm
from turbo_hydra.launch.job import Job, count

FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run(job: Job) -> int:
    """Run a job and return its exit status.

    Parameters
    ----------
    job : Job
        What to run, resolved.

    Returns
    -------
    int
        0; 2 for wrong settings; 3 for a strict stop; 128+n for signal n; else the status of the first rank that failed.

    Raises
    ------
    SystemExit
        With 128+n, after everything was ended and reported, if this process was told to end by signal n: whatever
        called (a sweep with more jobs) has to end too.
    """
    try:
        _make_folder(job)
        ranks = count(job.runtime, "ranks", 1, least=1)
        started = environment.for_agent(job.runtime, ranks)
    except TurboHydraError as problem:
        _say(str(problem))
        return outcome.WRONG_USE
    except OSError as problem:
        reason = problem.strerror or problem
        _say(f"cannot write the run's folder {job.folder}: {reason}; choose another with hydra.run.dir")
        return outcome.WRONG_USE
    running: _Agent | slurm.Submission
    if slurm.is_wanted(job):
        early.drop()
        try:
            running = slurm.Submission(job, started)
        except TurboHydraError as problem:
            _say(str(problem))
            return outcome.WRONG_USE
        status = running.wait()
    else:
        running = _Agent(job, started)
        returncode = running.wait()
        status = outcome.from_returncode(returncode)
        if returncode < 0 and running.received is None:
            _say(f"the launch agent was killed by {signal.Signals(-returncode).name}; its ranks were ended")
    if running.received is not None:
        status = 128 + running.received
    if nodes.rank_of(job) == 0:
        if nodes.number_of(job) > 1:
            nodes.wait_for_others(job)
        status = merging.own_status(job, status)
        _report(job, status)
    if running.received is not None:
        raise SystemExit(status)
    return status


def _make_folder(job: Job) -> None:
    # Reports of an earlier run in this folder would be merged into this one's. Ranks start when all nodes have met, so
    # nobody writes into `ranks` yet; of the agents, each node removes what an earlier one left under its own number.
    node, several = nodes.rank_of(job), nodes.number_of(job)
    agents = job.folder / "agents"
    for path in agents.glob("*.*"):
        number = path.name.partition(".")[0]
        if number == str(node) or (node == 0 and number.isdigit() and int(number) >= several):
            path.unlink(missing_ok=True)
    if node == 0:
        shutil.rmtree(job.folder / "ranks", ignore_errors=True)
        for name in ("report.json", "report.md"):
            (job.folder / name).unlink(missing_ok=True)
    job.write()
    secrets.hide_in_folder(Path(job.output_dir) / ".hydra")


class _Agent:
    """The agent's process, while it runs."""

    def __init__(self, job: Job, variables: dict[str, str]) -> None:
        self.received: signal.Signals | None = None
        self._times = 0
        self._orphans: set[int] = set()
        self._token = f"{job.run_id}-{os.getpid()}-{os.urandom(4).hex()}"
        self._environment = {
            **variables,
            processes.PARENT_VARIABLE: str(os.getpid()),
            processes.RUN_VARIABLE: self._token,
        }
        self._job = job
        self._process: subprocess.Popen[bytes] | None = None

    def wait(self) -> int:
        """Start the agent, wait until it ends, and return its return code; nobody of the run is left then."""
        with self._orphans_come_here(), self._signals_passed_on():
            # Its own session: a Ctrl-C in the terminal reaches it once, through us. It stands in a folder that holds
            # no Python file, since `-m` puts that first on its path.
            self._process = early.take(self._job.path, self._environment) or subprocess.Popen(
                [*early.command(), str(self._job.path)],
                cwd=self._job.folder,
                env=self._environment,
                start_new_session=True,
            )
            if self.received is not None:
                self._process.send_signal(self.received)
            returncode = self._process.wait()
            # The agent ends them itself, unless something ended the agent.
            processes.end_all(self._left_behind, self._collect, grace=0.0)
            return returncode

    def _on_signal(self, signum: int, frame: FrameType | None) -> None:
        self.received = signal.Signals(signum)
        if self._process is None or self._process.returncode is not None:
            return
        self._times += 1
        self._process.send_signal(signal.SIGKILL if self._times > 2 else self.received)

    @contextmanager
    def _signals_passed_on(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield  # Python runs handlers in the main thread only, which is the caller's
            return
        before: dict[signal.Signals, Any] = {}
        for signum in FORWARDED:
            # Ignored stays ignored: that is how nohup keeps a run alive.
            if signal.getsignal(signum) is not signal.SIG_IGN:
                before[signum] = signal.signal(signum, self._on_signal)
        try:
            yield
        finally:
            for signum, handler in before.items():
                signal.signal(signum, signal.SIG_DFL if handler is None else handler)

    @contextmanager
    def _orphans_come_here(self) -> Iterator[None]:
        # If the agent is killed, what its ranks started would go to init, out of sight.
        already = processes.is_subreaper()
        processes.set_subreaper()
        try:
            yield
        finally:
            processes.set_subreaper(already)

    def _left_behind(self) -> list[int]:
        left = [
            process
            for process in processes.descendants(os.getpid())
            if processes.has_variable(process, processes.RUN_VARIABLE, self._token)
        ]
        self._orphans.update(left)
        return left

    def _collect(self) -> None:
        # One by one: other children of this process are somebody else's to wait for.
        for process in list(self._orphans):
            with suppress(ChildProcessError):
                if os.waitpid(process, os.WNOHANG)[0] == 0:
                    continue
            self._orphans.discard(process)


def _report(job: Job, status: int) -> None:
    """Merge, write and show. The run is over: what goes wrong here is told and changes nothing."""
    report = merging.read(job, status)
    try:
        files.write_json(job.folder / "report.json", report)
        files.write_text(job.folder / "report.md", showing.markdown(report))
    except OSError as problem:
        _say(f"cannot write the report into {job.folder}: {problem.strerror or problem}")
    if report["execution"] or report["steps"]:
        try:
            showing.show(report, str(job.folder))
        except BrokenPipeError:
            # Whoever read the output has left (`| head`); the interpreter's own flush would complain once more.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _say(text: str) -> None:
    sys.stderr.write(f"turbo_hydra: {text}\n")
    sys.stderr.flush()
