# SPDX-License-Identifier: Apache-2.0
"""Whoever is told to end, or is killed: nobody is left, within bounded time."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from turbo_hydra.launch import processes

if TYPE_CHECKING:
    import subprocess

    from tests.launch.conftest import Launching

pytestmark = pytest.mark.slow

# Each rank has a child that ignores all that can be ignored, and a grandchild that left its session and its parent.
STUBBORN = """
import os, pathlib, signal, subprocess, sys, time
IGNORING = '''
import signal, time, pathlib, sys
for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT"):
    signal.signal(getattr(signal, name), signal.SIG_IGN)
pathlib.Path(sys.argv[1]).touch()
time.sleep(600)
'''
rank = os.environ["RANK"]
subprocess.Popen([sys.executable, "-c", IGNORING, f"child{rank}"])
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execv(sys.executable, [sys.executable, "-c", IGNORING, f"daemon{rank}"])
    os._exit(0)
{extra}
while not all(os.path.exists(f"{{kind}}{{rank}}") for kind in ("child", "daemon")):
    time.sleep(0.01)
pathlib.Path(f"ready{{rank}}").touch()
time.sleep(600)
"""


def started(launching: Launching, ranks: int = 2, extra: str = "") -> subprocess.Popen[str]:
    """Start stubborn ranks and wait until all their processes are there."""
    text = STUBBORN.replace("{extra}", extra).replace("{{", "{").replace("}}", "}")
    command = launching.start(launching.job(text, ranks=ranks, runtime={"timeouts": {"shutdown": 3}}))
    launching.until(lambda: all((launching.folder / f"ready{rank}").exists() for rank in range(ranks)))
    assert len(launching.alive()) == 2 + 3 * ranks
    return command


def agent_of(command: subprocess.Popen[str]) -> int:
    for process, parent in processes.parents().items():
        if parent == command.pid and b"turbo_hydra.launch.agent" in Path(f"/proc/{process}/cmdline").read_bytes():
            return process
    raise AssertionError("the command has no agent")


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_the_command_ends_everybody(launching: Launching, signum: signal.Signals) -> None:
    command = started(launching)
    command.send_signal(signum)
    ran = launching.finish(command, 30)
    assert ran.status == 128 + signum
    assert launching.alive() == {}
    assert "Traceback" not in ran.out + ran.err
    assert ran.report["exit_status"] == 128 + signum


def test_a_rank_that_handles_the_signal_has_time_to_save(launching: Launching) -> None:
    extra = """
def save(signum, frame):
    time.sleep(1)
    pathlib.Path("saved").touch()
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
"""
    command = started(launching, 1, extra)
    command.terminate()
    assert launching.finish(command, 30).status == 143
    assert (launching.folder / "saved").exists()


def test_a_rank_that_ignores_every_signal_is_killed(launching: Launching) -> None:
    extra = "for number in (signal.SIGINT, signal.SIGTERM): signal.signal(number, signal.SIG_IGN)"
    command = started(launching, 1, extra)
    command.send_signal(signal.SIGINT)
    assert launching.finish(command, 30).status == 130
    assert launching.alive() == {}


def test_the_third_signal_waits_for_nobody(launching: Launching) -> None:
    extra = "for number in (signal.SIGINT, signal.SIGTERM): signal.signal(number, signal.SIG_IGN)"
    text = STUBBORN.replace("{extra}", extra).replace("{{", "{").replace("}}", "}")
    command = launching.start(launching.job(text, runtime={"timeouts": {"shutdown": 300}}))
    launching.until((launching.folder / "ready0").exists)
    agent = agent_of(command)
    for _ in range(3):
        command.send_signal(signal.SIGINT)
        # Signals of one kind that arrive together are one; the next is sent when this one was passed on.
        launching.until(lambda: not pending(command.pid, signal.SIGINT))
        launching.until(lambda: not os.path.exists(f"/proc/{agent}") or not pending(agent, signal.SIGINT))
    assert launching.finish(command, 30).status == 130
    assert launching.alive() == {}


def pending(process: int, signum: signal.Signals) -> bool:
    """Tell whether a signal was sent to a process and not yet taken."""
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return False
    shared = next(line for line in status.splitlines() if line.startswith("ShdPnd:"))
    return bool(int(shared.split()[1], 16) >> (signum - 1) & 1)


def test_the_command_is_killed(launching: Launching) -> None:
    command = started(launching)
    command.kill()
    launching.until(lambda: not launching.alive(), 30)
    command.communicate()


def test_the_agent_is_killed(launching: Launching) -> None:
    command = started(launching)
    os.kill(agent_of(command), signal.SIGKILL)
    ran = launching.finish(command, 30)
    assert ran.status == 137
    assert launching.alive() == {}
    assert "the launch agent was killed by SIGKILL" in ran.err
    assert [rank["status"] for rank in ran.report["ranks"]] == ["killed", "killed"]


def test_agent_and_command_are_killed_at_once(launching: Launching) -> None:
    job = launching.job("import pathlib, time\npathlib.Path('ready').touch()\ntime.sleep(600)\n")
    command = launching.start(job)
    launching.until((launching.folder / "ready").exists)
    agent = agent_of(command)
    command.send_signal(signal.SIGSTOP)  # it may not see the agent end
    os.kill(agent, signal.SIGKILL)
    launching.until(lambda: len(launching.alive()) == 1, 30)
    command.kill()
    command.communicate()
    assert launching.alive() == {}


def test_a_rank_is_killed(launching: Launching) -> None:
    command = started(launching)
    report = json.loads((launching.output / "turbo" / "ranks" / "1" / "report.json").read_text())
    os.kill(report["pid"], signal.SIGKILL)
    ran = launching.finish(command, 30)
    assert ran.status == 137
    assert launching.alive() == {}
    assert "rank 1" in ran.err.splitlines()[-1]
    assert "SIGKILL" in ran.err.splitlines()[-1]


def test_a_signal_before_the_ranks_start(launching: Launching) -> None:
    command = launching.start(launching.job("import time\ntime.sleep(600)\n"))
    launching.until((launching.output / "turbo" / "job.json").exists)
    launching.until(lambda: any("launch.agent" in line for line in launching.alive().values()))
    command.terminate()
    assert launching.finish(command, 30).status == 143
    assert launching.alive() == {}


def test_an_ignored_hangup_stays_ignored(launching: Launching) -> None:
    job = launching.job(
        """
        import os, pathlib, time
        pathlib.Path("ready").touch()
        while not os.path.exists("go"): time.sleep(0.01)
        print("went on")
        """
    )
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # inherited, as under nohup
    try:
        command = launching.start(job)
    finally:
        signal.signal(signal.SIGHUP, before)
    launching.until((launching.folder / "ready").exists)
    command.send_signal(signal.SIGHUP)
    (launching.folder / "go").touch()
    ran = launching.finish(command)
    assert (ran.status, ran.out) == (0, "went on\n")


def test_what_a_successful_script_leaves_running_is_ended(launching: Launching) -> None:
    command = launching.start(
        launching.job(
            """
            import os, subprocess, sys, time
            code = "import signal, time, pathlib; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
            code += "; pathlib.Path('up').touch(); time.sleep(600)"
            subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
            while not os.path.exists("up"): time.sleep(0.01)
            """
        )
    )
    ran = launching.finish(command, 60)
    assert ran.status == 0
    assert launching.alive() == {}
