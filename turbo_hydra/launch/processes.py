# SPDX-License-Identifier: Apache-2.0
"""The process tree, as Linux keeps it: who dies with whom, who inherits orphans, and ending those left behind."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PR_GET_CHILD_SUBREAPER = 37

# The agent and the ranks compare it with their parent once, at their start: one whose parent died before the kernel
# was asked to tell would never be told. Read and removed; nothing else looks at it.
PARENT_VARIABLE = "TURBO_HYDRA_PARENT_PID"
# Inherited by all that belongs to one run; finds those whom a killed agent left behind.
RUN_VARIABLE = "TURBO_HYDRA_RUN"


def _prctl(option: int, argument: object) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, argument, 0, 0, 0) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def die_with_parent(signum: signal.Signals) -> None:
    """Have the kernel send `signum` to this process when the thread that started it ends.

    A process whose parent is gone already gets the signal at once.
    """
    _prctl(_PR_SET_PDEATHSIG, int(signum))
    expected = os.environ.pop(PARENT_VARIABLE, "")
    if expected.isdigit() and os.getppid() != int(expected):
        os.kill(os.getpid(), signum)


def is_subreaper() -> bool:
    """Tell whether orphaned descendants come to this process."""
    found = ctypes.c_int()
    _prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(found))
    return bool(found.value)


def set_subreaper(on: bool = True) -> None:
    """Inherit orphaned descendants (a daemonised child would go to init otherwise), or stop doing so."""
    _prctl(_PR_SET_CHILD_SUBREAPER, int(on))


def parents() -> dict[int, int]:
    """Return the parent of each process that can be seen; zombies included."""
    found = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            stat = Path("/proc", entry, "stat").read_bytes()
        except OSError:  # it ended meanwhile
            continue
        # The name stands in parentheses and may itself hold any of them.
        found[int(entry)] = int(stat.rpartition(b")")[2].split()[1])
    return found


def descendants(root: int) -> list[int]:
    """Return the processes below `root`, nearest first."""
    children: dict[int, list[int]] = {}
    for process, parent in parents().items():
        children.setdefault(parent, []).append(process)
    found: list[int] = []
    level = [root]
    while level:
        level = [child for parent in level for child in children.get(parent, [])]
        found += level
    return found


def has_variable(process: int, name: str, value: str) -> bool:
    """Tell whether a process was started with an environment variable of this value."""
    try:
        environment = Path("/proc", str(process), "environ").read_bytes()
    except OSError:
        return False
    return f"{name}={value}".encode() in environment.split(b"\0")


def catches(process: int, signum: int) -> bool:
    """Tell whether a process has a handler of its own for a signal."""
    return _in_mask(process, "SigCgt", signum)


def is_at(process: int, signum: int) -> bool:
    """Tell whether a signal that was sent to a process has not reached it yet, or its handler is at work.

    The kernel gives it to the main thread, which has it blocked until the handler returns; or has always.
    """
    return _in_mask(process, "ShdPnd", signum) or _in_mask(process, "SigBlk", signum)


def _in_mask(process: int, name: str, signum: int) -> bool:
    try:
        status = Path("/proc", str(process), "status").read_text(errors="replace")
    except OSError:
        return False
    mask = next((line.split()[1] for line in status.splitlines() if line.startswith(f"{name}:")), "0")
    return bool(int(mask, 16) >> (signum - 1) & 1)


def reap() -> None:
    """Collect each child that has ended. Only for a process that has no other use for their statuses."""
    while True:
        try:
            process, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if process == 0:
            return


def end_all(find: Callable[[], list[int]], collect: Callable[[], None], grace: float, limit: float = 5.0) -> list[int]:
    """End the processes that `find` names: SIGTERM, then SIGKILL after `grace` seconds.

    Parameters
    ----------
    find : callable
        Returns those still there; called until it returns none, since one that ends leaves its children to us.
    collect : callable
        Collects those that ended, so that `find` no longer sees them.
    grace : float
        Seconds between the two signals; 0 kills at once.
    limit : float
        Seconds after which those that cannot be killed (uninterruptible sleep) are given up.

    Returns
    -------
    list of int
        The processes that were there.
    """
    seen: dict[int, None] = {}
    told: set[int] = set()
    kill_from = time.monotonic() + grace
    give_up = kill_from + limit
    pause = 0.005
    while True:
        collect()
        left = find()
        if not left or time.monotonic() > give_up:
            return list(seen)
        kill = time.monotonic() >= kill_from
        for process in left:
            seen[process] = None
            try:
                if kill:
                    os.kill(process, signal.SIGKILL)
                elif process not in told:
                    told.add(process)
                    os.kill(process, signal.SIGTERM)
            except (ProcessLookupError, PermissionError):
                continue
        time.sleep(pause)
        pause = min(pause * 2, 0.1)
