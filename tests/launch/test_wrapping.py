# SPDX-License-Identifier: Apache-2.0
"""`turbo-train run -- COMMAND`: groups for a training command as it is typed."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.launch.conftest import Ran

if TYPE_CHECKING:
    from tests.launch.conftest import Launching

PYTHON = sys.executable
TORCHRUN = (PYTHON, "-m", "torch.distributed.run")

# Each process writes down what it is and whether the optimizer that it makes is the optimized one.
SCRIPT = """
import json, os, subprocess, sys
import torch

parameter = torch.nn.Parameter(torch.ones(3))
fused = torch.optim.AdamW([parameter]).defaults.get("fused")
rank = os.environ.get("RANK", "0")
tool = "import sys; print('turbo_hydra.api' in sys.modules, 'turbo_hydra' in sys.modules)"
found = {
    "fused": fused, "arguments": sys.argv[1:], "file": __file__, "name": __name__,
    "safe_path": os.environ.get("PYTHONSAFEPATH"), "first": sys.path[0],
    "tool": subprocess.run([sys.executable, "-c", tool], capture_output=True, text=True).stdout.strip(),
    "launcher": open(f"/proc/{os.getppid()}/cmdline").read().split("\\0")[1:3],
}
open(f"found{rank}.json", "w").write(json.dumps(found))
if "--fail" in sys.argv:
    sys.exit(7)
"""


def wrap(launching: Launching, *command: str, overrides: tuple[str, ...] = ()) -> Ran:
    ran = launching.python(
        *("-m", "turbo_hydra.cli.train", "run", f"hydra.run.dir={launching.output}", *overrides, "--", *command)
    )
    return ran


def found(launching: Launching, rank: int = 0) -> dict[str, object]:
    data: dict[str, object] = json.loads((launching.folder / f"found{rank}.json").read_text())
    return data


def test_what_cannot_be_rewritten_ends_with_2_and_leaves_no_folder(launching: Launching) -> None:
    launching.output.rmdir()
    for command, words in [
        (("bash", "train.sh"), "'bash' runs a shell script"),
        (("torchrun", "absent.py"), "there is no script absent.py"),
    ]:
        ran = wrap(launching, *command)
        assert (ran.status, ran.out, len(ran.err.splitlines())) == (2, "", 1)
        assert words in ran.err
    for override, sentence in [
        ("runtime.ranks=2", "'runtime.ranks' is decided by the command after --; give it to its launcher"),
        (
            "runtime.timeouts.hang=60",
            "'runtime.timeouts.hang' looks at the output of the ranks, which the command after -- puts elsewhere; "
            "leave it out",
        ),
    ]:
        ran = wrap(launching, "python", "x.py", overrides=(override,))
        assert (ran.status, ran.err) == (2, f"turbo-train: {sentence}\n")
    assert not launching.output.exists()
    launching.output.mkdir()


def test_a_command_without_its_dashes_is_told(launching: Launching) -> None:
    ran = launching.python("-m", "turbo_hydra.cli.train", "run", "torchrun", "train.py")
    assert (ran.status, ran.out) == (2, "")
    assert ran.err.startswith("turbo-train: put -- before the command")
    assert launching.python("-m", "turbo_hydra.cli.train", "run", "--help").out.startswith(
        "turbo-train run [OVERRIDES]"
    )


def test_plain_python(launching: Launching) -> None:
    script = launching.script(SCRIPT, "tools/train.py")
    ran = wrap(launching, PYTHON, "-u", "tools/train.py", "cfg.py", "--x=1")
    assert ran.status == 0, ran.err
    told = found(launching)
    assert told["fused"] is True
    assert (told["arguments"], told["file"], told["name"]) == (["cfg.py", "--x=1"], str(script), "__main__")
    assert (told["safe_path"], told["first"]) == (os.environ.get("PYTHONSAFEPATH"), str(script.parent))
    assert told["tool"] == "False False"
    assert {entry["group"]: entry["status"] for entry in ran.report["execution"]}["torch.fused_adamw"] == "applied"
    assert [rank["status"] for rank in ran.report["ranks"]] == ["succeeded"]


@pytest.mark.slow
def test_torchrun_starts_the_ranks_and_stays_what_it_is(launching: Launching) -> None:
    launching.script(SCRIPT, "pkg/train.py")
    launching.script("", "pkg/__init__.py")
    ran = wrap(launching, *TORCHRUN, "--nproc-per-node=2", "-m", "pkg.train", "a")
    assert ran.status == 0, ran.err
    for rank in (0, 1):
        told = found(launching, rank)
        assert (told["fused"], told["arguments"], told["first"]) == (True, ["a"], str(launching.folder))
        assert told["launcher"] == ["-m", "torch.distributed.run"]
        assert told["tool"] == "False False"
    assert [rank["status"] for rank in ran.report["ranks"]] == ["succeeded", "succeeded"]
    assert ran.report["disagreements"] == []


@pytest.mark.slow
def test_local_rank_reaches_the_script_where_its_launcher_puts_it(launching: Launching) -> None:
    # torch.distributed.launch does it as deepspeed does.
    launching.script(SCRIPT, "train.py")
    ran = wrap(launching, PYTHON, "-m", "torch.distributed.launch", "--nproc_per_node=1", "train.py", "a")
    assert ran.status == 0, ran.err
    assert found(launching)["arguments"] == ["--local-rank=0", "a"]


@pytest.mark.slow
def test_accelerate(launching: Launching) -> None:
    if importlib.util.find_spec("accelerate") is None:
        pytest.skip("accelerate is not installed")
    launching.script(SCRIPT, "train.py")
    command = (PYTHON, "-m", "accelerate.commands.launch", "--cpu", "--num_processes", "1", "--num_machines", "1")
    ran = wrap(launching, *command, "--mixed_precision=no", "--dynamo_backend=no", "train.py", "a")
    assert ran.status == 0, ran.err
    told = found(launching)
    assert (told["fused"], told["arguments"]) == (True, ["a"])


@pytest.mark.slow
def test_deepspeed(launching: Launching) -> None:
    if importlib.util.find_spec("deepspeed") is None:
        pytest.skip("deepspeed is not installed")
    launching.script(SCRIPT, "train.py")
    command = (PYTHON, "-m", "deepspeed.launcher.runner", "--num_gpus", "2", "train.py", "a")
    ran = wrap(launching, *command, overrides=("runtime.environment.set.DS_ACCELERATOR=cpu",))
    assert ran.status == 0, ran.err
    for rank in (0, 1):
        told = found(launching, rank)
        assert (told["fused"], told["arguments"]) == (True, [f"--local_rank={rank}", "a"])
        assert told["launcher"] == ["-u", "-m"]
    assert [rank["status"] for rank in ran.report["ranks"]] == ["succeeded", "succeeded"]


@pytest.mark.slow
def test_the_config_and_the_environment_are_chosen_before_the_dashes(launching: Launching) -> None:
    launching.script(SCRIPT.replace("if ", "assert os.environ['NEW'] == 'x'\nif ", 1), "train.py")
    overrides = ("optimization=common", "optimization.disable=['*']", "runtime.environment.set.NEW=x")
    ran = wrap(launching, PYTHON, "train.py", overrides=overrides)
    assert ran.status == 0, ran.err
    assert found(launching)["fused"] is None


@pytest.mark.slow
def test_the_status_is_that_of_the_rank_and_not_of_its_launcher(launching: Launching) -> None:
    launching.script(SCRIPT, "train.py")
    ran = wrap(launching, *TORCHRUN, "--nproc-per-node=1", "train.py", "--fail")
    assert ran.status == 7
    assert [(rank["status"], rank["exit_status"]) for rank in ran.report["ranks"]] == [("failed", 7)]


@pytest.mark.slow
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nobody_is_left_when_the_command_ends(launching: Launching, signum: signal.Signals) -> None:
    launching.script(
        """
        import os, pathlib, signal, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if os.fork() == 0:
            os.setsid()
        pathlib.Path(f"ready{os.getpid()}").touch()
        time.sleep(600)
        """,
        "train.py",
    )
    command = subprocess.Popen(
        [
            *(PYTHON, "-m", "turbo_hydra.cli.train", "run", f"hydra.run.dir={launching.output}"),
            *("runtime.timeouts.shutdown=2", "--", *TORCHRUN, "--nproc-per-node=2", "train.py"),
        ],
        cwd=launching.folder,
        env=launching.environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    launching.until(lambda: len(list(launching.folder.glob("ready*"))) == 4)
    os.kill(command.pid, signum)
    assert command.wait(60) == (-signum if signum == signal.SIGKILL else 128 + signum)
    launching.until(lambda: not launching.alive(), 30)
