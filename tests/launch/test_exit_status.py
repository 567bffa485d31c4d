# SPDX-License-Identifier: Apache-2.0
"""The command's exit status, and how a failure is told."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.launch.conftest import Launching


def test_a_script_that_succeeds(launching: Launching) -> None:
    job = launching.job("import os, sys\nprint('hello', os.environ['RANK'])\nprint('and this', file=sys.stderr)\n")
    ran = launching.run(job)
    assert (ran.status, ran.out, ran.err) == (0, "hello 0\n", "and this\n")
    assert (ran.log(0), ran.log(0, "stderr")) == ("hello 0\n", "and this\n")
    assert ran.report["status"] == "succeeded"
    assert [(rank["rank"], rank["status"], rank["exit_status"]) for rank in ran.report["ranks"]] == [
        (0, "succeeded", 0)
    ]
    assert json.loads((launching.output / "turbo" / "job.json").read_text())["run_id"] == "test-run"


def test_a_traceback_gives_1_and_is_shown_once(launching: Launching) -> None:
    ran = launching.run(launching.job("def train():\n    raise ValueError('boom')\ntrain()\n"))
    script = launching.folder / "script.py"
    assert ran.status == 1
    assert ran.err.startswith(f'Traceback (most recent call last):\n  File "{script}", line 3, in <module>\n')
    assert (ran.out + ran.err).count("Traceback") == 1
    assert "rank 0" in ran.err.splitlines()[-1]
    assert ran.report["failure"]["message"] == "ValueError: boom"
    assert ran.report["failure"]["traceback"].count("Traceback") == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ending", "status", "of_rank"),
    [
        ("sys.exit(7)", 7, "failed"),
        ("os._exit(5)", 5, "failed"),
        ("sys.exit('text')", 1, "failed"),
        ("os.kill(os.getpid(), signal.SIGKILL)", 137, "killed"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", 139, "killed"),
        ("os.kill(os.getpid(), signal.SIGTERM)", 143, "killed"),
    ],
)
def test_how_a_script_ends_is_how_the_command_ends(
    launching: Launching, ending: str, status: int, of_rank: str
) -> None:
    ran = launching.run(launching.job(f"import os, signal, sys\n{ending}\n"))
    assert ran.status == status
    assert ran.report["exit_status"] == status
    assert [(rank["status"], rank["exit_status"]) for rank in ran.report["ranks"]] == [(of_rank, status)]
    assert "Traceback" not in ran.out + ran.err


@pytest.mark.slow
def test_an_error_while_the_interpreter_ends_counts(launching: Launching) -> None:
    ran = launching.run(launching.job("import atexit, os\natexit.register(os._exit, 9)\n"))
    assert ran.status == 9
    assert ran.report["ranks"][0]["status"] == "failed"


WRONG: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "no such repository": ({"repo": "nowhere", "entry": "s.py"}, {}, "'model.repo' is nowhere"),
    "no such package": ({"repo": "pkg://no_such_package/x", "entry": "s.py"}, {}, "no package 'no_such_package'"),
    "no such script": ({"entry": "absent.py"}, {}, "'model.entry' is absent.py"),
    "neither script nor module": ({}, {}, "found neither"),
    "script and module": ({"entry": "script.py", "module": "m"}, {}, "found both"),
    "no such module": ({"module": "no_such.thing"}, {}, "no module 'no_such'"),
    "no such working folder": ({"entry": "script.py", "cwd": "absent"}, {}, "'model.cwd' is absent"),
    "unknown style": ({"entry": "script.py", "arg_style": "colon"}, {}, "'model.arg_style'"),
    "no ranks": ({"entry": "script.py"}, {"ranks": 0}, "'runtime.ranks'"),
    "a value that is no variable": ({"entry": "script.py"}, {"environment": {"set": {"A": [1]}}}, "environment.set.A"),
    "a node without a number": ({"entry": "script.py"}, {"nodes": 2}, "each node is told its number"),
    "no place to meet": ({"entry": "script.py"}, {"nodes": 2, "node_rank": 0}, "runtime.rendezvous.endpoint=HOST"),
    "unknown binding": ({"entry": "script.py"}, {"affinity": {"numa": "moon"}}, "'runtime.affinity.numa'"),
    "too few CPU lists": (
        {"entry": "script.py"},
        {"ranks": 2, "affinity": {"cpus": ["0"]}},
        "one entry for each of the 2 ranks of a node, found 1 entries",
    ),
    "no such interface": ({"entry": "script.py"}, {"network": {"interface": "moon0"}}, "'runtime.network.interface'"),
    "unknown start method": ({"entry": "script.py"}, {"start_method": "teleport"}, "'runtime.start_method'"),
    "unknown accelerator": ({"entry": "script.py"}, {"accelerator": "abacus"}, "'runtime.accelerator'"),
    "no such device": (
        {"entry": "script.py"},
        {"accelerator": "hcu", "ranks": 8},
        "runtime.accelerator=hcu needs 8 HCU devices for 8 ranks",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_settings_end_with_2_and_one_sentence_before_a_rank_starts(launching: Launching, name: str) -> None:
    model, runtime, words = WRONG[name]
    launching.script("print('it ran')\n")
    ran = launching.run(launching.job(model=model, runtime=runtime))
    assert ran.status == 2
    assert ran.out == ""
    assert len(ran.err.splitlines()) == 1
    assert words in ran.err


@pytest.mark.slow
def test_a_reader_that_leaves_early_changes_nothing(launching: Launching) -> None:
    command = launching.start(launching.job("print('it ran')\n", measure={"enabled": True}))
    assert command.stdout is not None
    command.stdout.close()
    assert command.wait(120) == 0
    assert command.stderr is not None
    assert "BrokenPipe" not in command.stderr.read()
    command.stderr.close()


def test_an_output_folder_that_cannot_be_written_is_named(launching: Launching) -> None:
    (launching.output / "turbo").write_text("in the way")
    ran = launching.run(launching.job("print('it ran')\n"))
    assert (ran.status, ran.out, len(ran.err.splitlines())) == (2, "", 1)
    assert str(launching.output / "turbo") in ran.err


@pytest.mark.slow
def test_a_rank_that_fails_takes_the_others_with_it(launching: Launching) -> None:
    job = launching.job(
        """
        import os, time
        if os.environ["RANK"] == "1":
            raise ValueError("only here")
        time.sleep(600)
        """,
        ranks=2,
    )
    start = time.monotonic()
    ran = launching.run(job)
    assert ran.status == 1
    assert time.monotonic() - start < 60
    # Rank 1 writes into its file only, so the agent shows what it said.
    assert ran.err.count("ValueError: only here") == 2
    assert (ran.out + ran.err).count("Traceback") == 1
    assert ran.err.splitlines()[-1].startswith("turbo_hydra: rank 1 ")
    assert ran.report["failure"]["rank"] == 1
    assert [rank["status"] for rank in ran.report["ranks"]] == ["killed", "failed"]


@pytest.mark.slow
def test_a_rank_that_ignores_sigterm_is_killed_in_bounded_time(launching: Launching) -> None:
    job = launching.job(
        """
        import os, signal, sys, time
        if os.environ["RANK"] == "1":
            while not os.path.exists("ready"): time.sleep(0.01)
            sys.exit(7)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        open("ready", "w").close()
        time.sleep(600)
        """,
        ranks=2,
        runtime={"timeouts": {"shutdown": 2}},
    )
    command = launching.start(job)
    launching.until((launching.folder / "ready").exists)
    start = time.monotonic()
    ran = launching.finish(command)
    # torch's own wait is 30 seconds.
    assert time.monotonic() - start < 20
    assert ran.status == 7
    assert [(rank["status"], rank["exit_status"]) for rank in ran.report["ranks"]] == [("killed", 137), ("failed", 7)]


@pytest.mark.slow
def test_a_restart_runs_the_ranks_again_and_keeps_the_logs_of_both(launching: Launching) -> None:
    job = launching.job(
        """
        import os, sys
        attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
        print("attempt", attempt)
        sys.exit(3 if attempt == "0" else 0)
        """,
        runtime={"restarts": 1},
    )
    ran = launching.run(job)
    assert (ran.status, ran.out) == (0, "attempt 0\nattempt 1\n")
    folder = launching.output / "turbo" / "ranks" / "0"
    assert (folder / "attempt0.stdout.log").read_text() == "attempt 0\n"
    assert ran.log(0) == "attempt 1\n"


@pytest.mark.slow
def test_output_is_copied_as_it_is_whatever_it_is(launching: Launching) -> None:
    job = launching.job(
        """
        import os
        os.write(1, b"10%\\r20%\\r\\xff\\xfe no text\\n")
        os.write(1, b"x" * 3_000_000)
        """
    )
    ran = launching.run(job)
    assert ran.status == 0
    log = (launching.output / "turbo" / "ranks" / "0" / "stdout.log").read_bytes()
    assert log == b"10%\r20%\r\xff\xfe no text\n" + b"x" * 3_000_000
    assert len(ran.out) == len(log)


@pytest.mark.slow
def test_ranks_that_are_shown_together_are_told_apart(launching: Launching) -> None:
    job = launching.job("import os\nprint('hello', os.environ['RANK'])\n", ranks=2, runtime={"logs": {"tee": "all"}})
    ran = launching.run(job)
    assert sorted(ran.out.splitlines()) == ["[rank 0] hello 0", "[rank 1] hello 1"]


@pytest.mark.slow
def test_ranks_write_straight_to_the_terminal_when_asked(launching: Launching) -> None:
    job = launching.job("print('hello')\n", runtime={"logs": {"redirect": "none"}})
    ran = launching.run(job)
    assert (ran.status, ran.out) == (0, "hello\n")
    assert not (launching.output / "turbo" / "ranks" / "0" / "stdout.log").exists()
