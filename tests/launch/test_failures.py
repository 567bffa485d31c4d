# SPDX-License-Identifier: Apache-2.0
"""What scripts and machines do to a run: each has its outcome, in bounded time, and training goes on where it can."""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from turbo_hydra.launch import failures, processes, watching

if TYPE_CHECKING:
    from tests.launch.conftest import Launching

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a small disk or a memory limit")


@pytest.mark.slow
def test_a_script_that_leaves_without_a_word_has_succeeded(launching: Launching) -> None:
    ran = launching.run(launching.job("import os\nprint('done', flush=True)\nos._exit(0)\n"))
    assert (ran.status, ran.out) == (0, "done\n")
    assert [(rank["status"], rank["exit_status"]) for rank in ran.report["ranks"]] == [("succeeded", 0)]


@pytest.mark.slow
def test_a_fork_of_the_rank_is_not_the_rank(launching: Launching) -> None:
    ran = launching.run(
        launching.job(
            """
            import os, sys
            if os.fork() == 0:
                sys.exit(5)
            print(os.waitstatus_to_exitcode(os.wait()[1]))
            """
        )
    )
    assert (ran.status, ran.out) == (0, "5\n")
    assert [(rank["status"], rank["exit_status"]) for rank in ran.report["ranks"]] == [("succeeded", 0)]


@pytest.mark.slow
def test_a_great_deal_of_output_is_neither_lost_nor_kept_in_memory(launching: Launching) -> None:
    job = launching.job("import os\nfor _ in range(300): os.write(1, b'x' * (1 << 20))\n", ranks=1)
    command = subprocess.Popen(
        [sys.executable, "-c", "import sys; from tests.launch.conftest import COMMAND; exec(COMMAND)", _text(job)],
        cwd=Path(__file__).parents[2],
        env=launching.environment(PYTHONPATH=str(Path(__file__).parents[2])),
        stdout=subprocess.DEVNULL,
    )
    largest = 0
    while command.poll() is None:
        for process, line in launching.alive().items():
            if "launch.agent" in line:
                largest = max(largest, _resident(process))
        time.sleep(0.05)
    assert command.returncode == 0
    assert (launching.output / "turbo" / "ranks" / "0" / "stdout.log").stat().st_size == 300 << 20
    # torch itself takes about 250 MB.
    assert largest < 500 << 20


def _text(job: object) -> str:
    return json.dumps(vars(job))


def _resident(process: int) -> int:
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "small"
    place.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", place], capture_output=True, check=False)
    if made.returncode:
        pytest.skip("no disk can be mounted here")
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)


@pytest.mark.slow
@as_root
def test_a_full_disk_ends_no_training(launching: Launching, small_disk: Path) -> None:
    launching.output = small_disk
    job = launching.job(
        """
        import os, pathlib
        here = pathlib.Path(os.environ["FULL"])
        try:
            with open(here / "fill", "wb") as file:
                while True: file.write(b"x" * 4096)
        except OSError as problem:
            pathlib.Path("trained").write_text(str(problem.errno))
        """
    )
    ran = launching.run(job, FULL=str(small_disk))
    assert ran.status == 0
    assert (launching.folder / "trained").read_text() == "28"
    assert "cannot write" in ran.err
    assert "Traceback" not in ran.err


@pytest.mark.slow
@as_root
def test_a_rank_that_the_kernel_kills_for_memory_is_told_as_such(launching: Launching) -> None:
    root = Path("/sys/fs/cgroup")
    own = (root / "memory") if (root / "memory").is_dir() else root
    limit = "memory.limit_in_bytes" if own != root else "memory.max"
    if not (own / "cgroup.procs").exists():
        pytest.skip("no control groups here")
    group = own / f"turbo-{launching.mark[:8]}"
    try:
        group.mkdir()
        (group / limit).write_text(str(1 << 30))
    except OSError:
        if group.is_dir():
            group.rmdir()
        pytest.skip("no memory limit can be set here")
    try:
        job = launching.job("import os\nfilled = bytearray(os.urandom(1 << 20)) * 4096\n")
        limited = f"import os; open({str(group / 'cgroup.procs')!r}, 'w').write(str(os.getpid()))"
        command = subprocess.Popen(
            [sys.executable, "-c", f"{limited}; from tests.launch.conftest import COMMAND; exec(COMMAND)", _text(job)],
            cwd=Path(__file__).parents[2],
            env=launching.environment(PYTHONPATH=str(Path(__file__).parents[2])),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        ran = launching.finish(command)
        assert ran.status == 137
        assert "was killed by SIGKILL, probably since memory ran out" in ran.err
    finally:
        launching.until(lambda: not (group / "cgroup.procs").read_text())
        group.rmdir()


@pytest.mark.slow
def test_a_run_that_hangs_is_ended_and_shows_where_each_rank_was(launching: Launching) -> None:
    job = launching.job(
        """
        import threading
        def wait_for_the_others():
            threading.Event().wait()
        print("begun", flush=True)
        wait_for_the_others()
        """,
        ranks=2,
        runtime={"timeouts": {"hang": 4, "shutdown": 3}},
    )
    start = time.monotonic()
    ran = launching.run(job)
    assert time.monotonic() - start < 100
    assert ran.status == 1
    assert "no rank printed anything or made a step for 4 seconds (runtime.timeouts.hang)" in ran.err
    for rank in (0, 1):
        assert "in wait_for_the_others" in ran.log(rank, "stderr")
        assert str(launching.folder / "script.py") in ran.log(rank, "stderr")
    assert ran.report["nodes"][0]["trouble"].startswith("no rank printed")


@pytest.mark.slow
def test_a_run_that_prints_is_not_taken_for_one_that_hangs(launching: Launching) -> None:
    job = launching.job(
        "import time\nfor _ in range(30):\n    print('.', flush=True)\n    time.sleep(0.2)\n",
        runtime={"timeouts": {"hang": 4}},
    )
    assert launching.run(job).status == 0


@pytest.mark.slow
def test_a_rank_that_does_not_begin_is_ended(launching: Launching) -> None:
    launching.script("import time\ntime.sleep(600)\n", "stuck/__init__.py")
    launching.script("", "stuck/train.py")
    ran = launching.run(launching.job(model={"module": "stuck.train"}, runtime={"timeouts": {"start": 4}}))
    assert ran.status == 1
    assert "rank 0 had not begun its script after 4 seconds (runtime.timeouts.start)" in ran.err
    assert "stuck/__init__.py" in ran.log(0, "stderr")


@pytest.mark.slow
def test_a_rank_that_will_not_end_shows_where_it_is_before_it_is_killed(launching: Launching) -> None:
    job = launching.job(
        """
        import os, signal, sys, time
        if os.environ["RANK"] == "1":
            while not os.path.exists("ready"): time.sleep(0.01)
            sys.exit(7)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        open("ready", "w").close()
        def stubborn():
            time.sleep(600)
        stubborn()
        """,
        ranks=2,
        runtime={"timeouts": {"shutdown": 3}},
    )
    ran = launching.run(job)
    assert ran.status == 7
    assert "in stubborn" in ran.log(0, "stderr")


ANSWERING = """
import os, sys, time
from turbo_hydra.launch import watching
if sys.argv[1] == "yes":
    watching.answer_with_stacks()
print("up", flush=True)
time.sleep(600)
"""


def test_only_processes_that_answer_are_asked_for_their_stacks(launching: Launching) -> None:
    started = [
        subprocess.Popen(
            [sys.executable, "-c", ANSWERING, answer],
            env=launching.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for answer in ("yes", "no")
    ]
    try:
        for process in started:
            assert process.stdout is not None
            assert process.stdout.readline() == "up\n"
        assert [processes.catches(process.pid, watching.DUMP_SIGNAL) for process in started] == [True, False]
        asked = watching.dump_stacks()
        assert started[0].pid in asked
        assert started[1].pid not in asked
        assert started[0].stderr is not None
        assert "most recent call first" in started[0].stderr.readline()
        assert started[1].poll() is None
    finally:
        for process in started:
            process.kill()
            process.communicate()


def test_signals_that_wait_are_seen() -> None:
    child = os.fork()
    if child == 0:
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
        os.kill(os.getpid(), signal.SIGUSR1)
        time.sleep(600)
        os._exit(0)
    try:
        end = time.monotonic() + 10
        while not processes.is_at(child, signal.SIGUSR1):
            assert time.monotonic() < end
        assert not processes.is_at(child, signal.SIGUSR2)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert not processes.is_at(child, signal.SIGUSR1)


def test_a_signal_is_at_a_process_until_its_handler_has_written_the_stacks() -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writing, b"." * 65536)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writing, b".")
    os.set_blocking(writing, True)
    begun, begins = os.pipe()
    child = os.fork()
    if child == 0:
        faulthandler.register(signal.SIGUSR1, file=writing, all_threads=True)
        os.write(begins, b".")
        time.sleep(600)
        os._exit(0)
    try:
        os.read(begun, 1)
        os.kill(child, signal.SIGUSR1)
        # Nobody reads: the handler, once it has begun, waits in the midst of its first line for as long as one looks.
        end = time.monotonic() + 10
        while not processes._in_mask(child, "SigBlk", signal.SIGUSR1):
            assert time.monotonic() < end
        assert all(processes.is_at(child, signal.SIGUSR1) for _ in range(1000))
        os.set_blocking(reading, False)
        read, unseen = b"", 0
        end = time.monotonic() + 10
        while unseen < 3:
            assert time.monotonic() < end
            unseen = 0 if processes.is_at(child, signal.SIGUSR1) else unseen + 1
            with contextlib.suppress(BlockingIOError):
                read += os.read(reading, 65536)
        stacks = read.lstrip(b".")
        assert b"most recent call first" in stacks
        assert b"in test_a_signal_is_at_a_process" in stacks
        assert stacks.endswith(b"\n")
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        for number in (reading, writing, begun, begins):
            os.close(number)


def test_kills_for_memory_are_counted() -> None:
    assert failures.killed_for_memory() >= 0
    killed = failures.Failure(0, -9, 7, memory=True)
    assert killed.sentence() == "rank 0 (pid 7) was killed by SIGKILL, probably since memory ran out"
    assert failures.Failure(0, 1, 7, memory=True).sentence() == "rank 0 (pid 7) ended with status 1"
