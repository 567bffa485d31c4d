# SPDX-License-Identifier: Apache-2.0
"""Jobs of a sweep that run at the same time, each in a process and with devices of its own."""

from __future__ import annotations

import os
import pickle
import selectors
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType
from typing import Any

from hydra.core.utils import JobReturn, JobStatus

from turbo_hydra.launch import processes
from turbo_hydra.launch.slots import Slots

_ENDING = (signal.SIGTERM, signal.SIGHUP)


@dataclass
class _Running:
    """A job that runs: its place in the sweep, its process, and its devices."""

    index: int
    process: int
    devices: list[str]
    said: bytes = b""


def run(
    jobs: Sequence[Callable[[], JobReturn]],
    wanted: Sequence[int],
    at_once: int,
    slots: Slots,
    done: Callable[[int, JobReturn], bool],
) -> None:
    """Run jobs, at most `at_once` at a time, in order.

    Parameters
    ----------
    jobs : sequence of callable
        Each runs one job; called in a process forked from this one.
    wanted : sequence of int
        How many devices each needs.
    at_once : int
        How many may run at a time.
    slots : Slots
        The devices.
    done : callable
        Gets the index and the result of each job as it ends; returns whether the jobs that wait may start.
    """
    waiting = list(range(len(jobs)))
    with selectors.DefaultSelector() as selector, _ended_together(selector):
        go_on = True
        while (waiting and go_on) or selector.get_map():
            while waiting and go_on and len(selector.get_map()) < at_once:
                devices = slots.take(wanted[waiting[0]])
                if devices is None:
                    break
                _start(waiting.pop(0), jobs, devices, slots, selector)
            for key, _ in selector.select():
                running: _Running = key.data
                block = os.read(key.fd, 1 << 16)
                running.said += block
                if block:
                    continue
                selector.unregister(key.fd)
                os.close(key.fd)
                _, status = os.waitpid(running.process, 0)
                slots.give(running.devices)
                go_on = done(running.index, _result(running, status)) and go_on


def _start(
    index: int,
    jobs: Sequence[Callable[[], JobReturn]],
    devices: list[str],
    slots: Slots,
    selector: selectors.BaseSelector,
) -> None:
    source, sink = os.pipe()
    process = os.fork()
    if process:
        os.close(sink)
        selector.register(source, selectors.EVENT_READ, _Running(index, process, devices))
        return
    status = 1
    try:
        # It may not outlive the sweep, whose end it hears of as of a Ctrl-C.
        processes.die_with_parent(signal.SIGTERM)
        for signum in _ENDING:
            signal.signal(signum, signal.SIG_DFL)
        os.close(source)
        if devices and slots.variable is not None:
            os.environ[slots.variable] = ",".join(devices)
        said = _sendable(jobs[index]())
        while said:
            said = said[os.write(sink, said) :]
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    except KeyboardInterrupt:
        status = 128 + signal.SIGINT
    finally:
        os._exit(status)


def _sendable(result: JobReturn) -> bytes:
    try:
        said = pickle.dumps(result)
        pickle.loads(said)  # exceptions with arguments of their own often cannot be read back
        return said
    except Exception as problem:
        value: Any = None
        if result.status == JobStatus.FAILED:
            value = RuntimeError(f"{type(result._return_value).__name__}: {result._return_value} ({problem})")
        return pickle.dumps(JobReturn(overrides=result.overrides, status=result.status, _return_value=value))


def _result(running: _Running, status: int) -> JobReturn:
    if os.waitstatus_to_exitcode(status) == 0 and running.said:
        found: JobReturn = pickle.loads(running.said)
        return found
    code = os.waitstatus_to_exitcode(status)
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
    return JobReturn(status=JobStatus.FAILED, _return_value=RuntimeError(f"the process of the job {how}"))


@contextmanager
def _ended_together(selector: selectors.BaseSelector) -> Iterator[None]:
    """End the jobs that run when this process is told to end."""

    def end(signum: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + signum)

    before = {signum: signal.signal(signum, end) for signum in _ENDING}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
        left: list[_Running] = [key.data for key in selector.get_map().values()]
        for running in left:
            with suppress(ProcessLookupError):
                os.kill(running.process, signal.SIGTERM)
        for running in left:
            with suppress(ChildProcessError):
                os.waitpid(running.process, 0)
