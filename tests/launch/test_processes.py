# SPDX-License-Identifier: Apache-2.0
"""The parts of the process tree, each by itself."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from turbo_hydra.launch import devices, processes
from turbo_hydra.launch.console import Follower
from turbo_hydra.launch.failures import Failure, first
from turbo_hydra.launch.job import JobError
from turbo_hydra.launch.outcome import describe, from_returncode

if TYPE_CHECKING:
    from tests.launch.conftest import Launching


def test_parents_and_descendants() -> None:
    # The shell's child is a grandchild here; the shell waits for it.
    shell = subprocess.Popen(["sh", "-c", "sleep 60 & echo started; wait"], stdout=subprocess.PIPE)
    assert shell.stdout is not None
    shell.stdout.readline()
    assert processes.parents()[shell.pid] == os.getpid()
    below = processes.descendants(os.getpid())
    assert shell.pid in below
    sleeper = next(process for process, parent in processes.parents().items() if parent == shell.pid)
    assert below.index(shell.pid) < below.index(sleeper)
    os.kill(sleeper, signal.SIGKILL)
    shell.communicate()
    assert shell.pid not in processes.parents()


DAEMON = """
import os, signal, sys, time
from turbo_hydra.launch import processes
processes.set_subreaper()
assert processes.is_subreaper()
gate, ready = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.write(ready, b"x")
        time.sleep(600)
    os._exit(0)
os.read(gate, 1)
me = os.getpid()
start = time.monotonic()
ended = processes.end_all(lambda: processes.descendants(me), processes.reap, grace=0.3)
print(len(ended) >= 1, processes.descendants(me), 0.3 <= time.monotonic() - start < 5)
"""


def test_a_daemon_that_ignores_sigterm_is_ended(launching: Launching) -> None:
    ran = launching.python("-c", DAEMON)
    assert (ran.status, ran.out, ran.err) == (0, "True [] True\n", "")


def test_nothing_to_end_takes_no_time() -> None:
    start = time.monotonic()
    assert processes.end_all(list, lambda: None, grace=10) == []
    assert time.monotonic() - start < 5


def test_a_child_is_told_when_its_parent_ends(launching: Launching) -> None:
    code = "from turbo_hydra.launch import processes; import signal, time; processes.die_with_parent(signal.SIGKILL)"
    child = f"{code}; print('up', flush=True); time.sleep(600)"
    parent = subprocess.Popen(
        [sys.executable, "-c", f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"],
        env=launching.environment(),
        stdout=subprocess.PIPE,
    )
    assert parent.stdout is not None
    assert parent.stdout.readline() == b"up\n"
    parent.kill()
    parent.communicate()
    launching.until(lambda: not launching.alive(), 10)


def test_a_child_whose_parent_ended_before_it_asked_ends_too(launching: Launching) -> None:
    code = "from turbo_hydra.launch import processes; import signal; processes.die_with_parent(signal.SIGTERM)"
    ran = launching.python("-c", f"{code}; print('still here')", **{processes.PARENT_VARIABLE: "1"})
    assert (ran.status, ran.out) == (-signal.SIGTERM, "")


def test_variables_of_another_process() -> None:
    assert processes.has_variable(os.getpid(), "PATH", os.environ["PATH"]) or "PATH" not in os.environ
    assert not processes.has_variable(os.getpid(), "PATH", "something else")
    assert not processes.has_variable(2**22 - 1, "PATH", "x")


@pytest.mark.parametrize("prefix", [b"", b"[rank 1] "])
def test_a_followed_file_is_copied_byte_by_byte(tmp_path: Path, prefix: bytes) -> None:
    log, copy = tmp_path / "log", tmp_path / "copy"
    with copy.open("wb") as target:
        follower = Follower(log, target.fileno(), prefix)
        follower.start()
        with log.open("wb", buffering=0) as source:
            for part in (b"one\ntwo", b" goes on\n10%\r20%", b"\r\xff\xfe\n", b"no end"):
                source.write(part)
        follower.stop(10)
    whole = b"one\ntwo goes on\n10%\r20%\r\xff\xfe\nno end"
    assert copy.read_bytes() == b"\n".join(prefix + line for line in whole.split(b"\n"))


def test_a_file_that_never_appears_is_no_error(tmp_path: Path) -> None:
    follower = Follower(tmp_path / "absent", 1)
    follower.start()
    follower.stop(10)


@pytest.mark.parametrize(
    ("failures", "rank"),
    [
        # The agent ended rank 0 after rank 1 failed.
        ([Failure(1, 1, 11, recorded=5.0), Failure(0, -15, 10)], 1),
        # Both noticed at once: rank 1 lost its peer because rank 0 had raised before.
        ([Failure(1, 1, 11, recorded=6.0), Failure(0, 1, 10, recorded=5.0)], 0),
        # A killed rank says nothing; what its peer says of it comes after.
        ([Failure(0, -9, 10), Failure(1, 1, 11, recorded=4.0)], 0),
        ([Failure(0, 7, 10), Failure(1, -9, 11)], 0),
        ([Failure(2, -15, 12)], 2),
    ],
)
def test_the_failure_that_the_others_follow_from(failures: list[Failure], rank: int) -> None:
    assert first(failures).rank == rank


def test_what_a_rank_recorded_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "error.json"
    assert Failure.read(0, -11, 7, path).sentence() == "rank 0 (pid 7) was killed by SIGSEGV"
    path.write_text("{")
    assert Failure.read(0, 4, 7, path).sentence() == "rank 0 (pid 7) ended with status 4"
    # As torch's own `record` writes it, which a script may use.
    said = {"message": {"message": "ValueError: x", "extraInfo": {"py_callstack": "Traceback...", "timestamp": "12"}}}
    path.write_text(json.dumps(said))
    failure = Failure.read(3, 1, 7, path)
    assert (failure.recorded, failure.traceback) == (12.0, "Traceback...")
    assert failure.sentence() == "rank 3 (pid 7) ended with status 1: ValueError: x"


def test_return_codes() -> None:
    assert [from_returncode(code) for code in (0, 7, -2, -9, -15)] == [0, 7, 130, 137, 143]
    assert [describe(status) for status in (3, 143, 200)] == ["status 3", "status 143 (SIGTERM)", "status 200"]


@pytest.mark.parametrize(
    ("runtime", "ranks", "backend", "found", "words"),
    [
        ({}, 8, None, 0, None),
        ({"accelerator": "auto"}, 8, None, 0, None),
        ({"accelerator": "cpu"}, 8, None, 0, None),
        ({"accelerator": "cuda"}, 8, "cuda", 8, None),
        ({"accelerator": "hcu"}, 2, "hip", 4, None),
        ({"accelerator": "cuda"}, 8, "cuda", 2, "needs 8 CUDA devices for 8 ranks, found 2"),
        ({"accelerator": "cuda"}, 1, "cuda", 0, "needs 1 CUDA device for 1 rank, found 0"),
        ({"accelerator": "cuda"}, 1, "hip", 8, "torch 2.13.0 is built for HIP"),
        ({"accelerator": "hcu"}, 8, None, 0, "torch 2.13.0 is built for the CPU only"),
        ({"accelerator": "abacus"}, 1, None, 0, "must be one of auto, cpu, cuda, hcu, found 'abacus'"),
    ],
)
def test_devices_are_counted_before_a_rank_starts(
    runtime: dict[str, str], ranks: int, backend: str | None, found: int, words: str | None
) -> None:
    if words is None:
        devices.check(runtime, ranks, "2.13.0", backend, found)
        return
    with pytest.raises(JobError, match=words):
        devices.check(runtime, ranks, "2.13.0", backend, found)
