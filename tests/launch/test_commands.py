# SPDX-License-Identifier: Apache-2.0
"""Putting a rank's entry into commands that people type."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from turbo_hydra.launch.commands import rewrite
from turbo_hydra.launch.job import JobError

RANK = "-m turbo_hydra.launch.rank JOB --"
REWRITTEN = [
    ("torchrun --nproc-per-node=8 train.py cfg.py --x=1", f"torchrun --nproc-per-node=8 {RANK} train.py cfg.py --x=1"),
    ("torchrun --nproc_per_node 8 --standalone train.py", f"torchrun --nproc_per_node 8 --standalone {RANK} train.py"),
    ("/opt/bin/torchrun -r3 -t 3 train.py -m", f"/opt/bin/torchrun -r3 -t 3 {RANK} train.py -m"),
    ("torchrun --nnodes 2 -m pkg.train -m x", f"torchrun --nnodes 2 {RANK} -m pkg.train -m x"),
    ("torchrun --module --nnodes=2 pkg.train", f"torchrun --nnodes=2 {RANK} -m pkg.train"),
    ("torchrun --run-path train.py", f"torchrun {RANK} train.py"),
    ("python train.py a -- b", f"python {RANK} train.py a -- b"),
    ("python3.11 -u -X dev -Wignore train.py -c 1", f"python3.11 -u -X dev -Wignore {RANK} train.py -c 1"),
    ("python -W error -m pkg.train x", f"python -W error {RANK} -m pkg.train x"),
    (
        "python -m torch.distributed.run --nproc-per-node 2 train.py",
        f"python -m torch.distributed.run --nproc-per-node 2 {RANK} train.py",
    ),
    (
        "python -m torch.distributed.launch --use_env train.py",
        f"python -m torch.distributed.launch --use_env {RANK} train.py",
    ),
    (
        "accelerate launch --num_processes 2 --multi_gpu train.py --lr 1",
        f"accelerate launch --num_processes 2 --multi_gpu {RANK} train.py --lr 1",
    ),
    ("accelerate launch -m pkg.train", f"accelerate launch {RANK} -m pkg.train"),
    (
        "deepspeed --num_gpus 4 --no_ssh train.py --deepspeed",
        "deepspeed --num_gpus 4 --no_ssh --module turbo_hydra.launch.rank JOB -- train.py --deepspeed",
    ),
    ("deepspeed --module pkg.train", "deepspeed --module turbo_hydra.launch.rank JOB -- -m pkg.train"),
]
REFUSED = [
    ("", "give the command"),
    ("bash run.sh", "'bash' runs a shell script"),
    ("sh -c 'torchrun train.py'", "'sh' runs a shell script"),
    ("./run.sh", "is a shell script"),
    ("./run", "is a shell script"),
    ("torchrun run.sh", "run.sh is a shell script"),
    ("python -c 'import x'", "has no file"),
    ("python -", "has no file"),
    ("python", "names no script"),
    ("python -m", "names no script"),
    ("torchrun --nproc-per-node 2", "names no script"),
    ("torchrun absent.py", "there is no script absent.py"),
    ("torchrun --no-python train.py", "leave --no-python out"),
    ("torchrun --help", "starts no script"),
    ("accelerate config", "only 'accelerate launch'"),
    ("no-such-program-anywhere x", "there is no program"),
    ("ls train.py", "is no Python program"),
]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("#!/usr/bin/env python3\n")
    (tmp_path / "run").write_text("#!/bin/bash\n")
    (tmp_path / "run.sh").write_text("torchrun train.py\n")
    for name in ("train.py", "run", "run.sh"):
        (tmp_path / name).chmod(0o755)
    return tmp_path


@pytest.mark.parametrize(("typed", "rewritten"), REWRITTEN)
def test_the_ranks_entry_takes_the_scripts_place(here: Path, typed: str, rewritten: str) -> None:
    assert rewrite(shlex.split(typed), "JOB") == shlex.split(rewritten)


@pytest.mark.parametrize(("typed", "words"), REFUSED)
def test_a_command_without_a_python_script_is_refused(here: Path, typed: str, words: str) -> None:
    with pytest.raises(JobError, match=words):
        rewrite(shlex.split(typed), "JOB")


def test_a_python_script_that_is_started_by_its_name(here: Path) -> None:
    assert rewrite(["./train.py", "x"], "JOB") == [
        "python3",
        *RANK.replace("JOB", "JOB").split(),
        str(here / "train.py"),
        "x",
    ]
