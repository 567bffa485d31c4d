# SPDX-License-Identifier: Apache-2.0
"""The ranks' environment and the compilers' folders."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import turbo_hydra
from turbo_hydra.engine import visible
from turbo_hydra.launch import environment
from turbo_hydra.launch.job import JobError

if TYPE_CHECKING:
    from tests.launch.conftest import Launching

ROOT = str(Path(turbo_hydra.__file__).resolve().parents[1])


def applied(settings: dict[str, Any], inherited: dict[str, str], in_rank: bool = False) -> dict[str, str]:
    variables = dict(inherited)
    environment.apply({"environment": settings}, variables, in_rank)
    return variables


def test_unset_comes_before_set() -> None:
    assert applied({"unset": ["A", "B"], "set": {"B": 2, "C": True, "D": None}}, {"A": "0", "B": "0", "E": "0"}) == {
        "B": "2",
        "C": "1",
        "E": "0",
    }


def test_a_rank_keeps_what_its_agent_gave_it() -> None:
    given = {"MASTER_ADDR": "here", "TORCHELASTIC_RUN_ID": "r", "RANK": "3", "OTHER": "x"}
    change = {"unset": list(given), "set": {"RANK": "9"}}
    assert applied(change, given) == {"RANK": "9"}
    assert applied(change, given, in_rank=True) == {name: given[name] for name in list(given)[:3]}


def test_a_withheld_variable_stays_as_it_was_inherited() -> None:
    assert applied({"unset": ["MY_TOKEN"], "set": {}, "withheld": ["MY_TOKEN"]}, {"MY_TOKEN": "x"}) == {"MY_TOKEN": "x"}


@pytest.mark.parametrize(
    "wrong", [{"set": {"A": [1]}}, {"set": {"A=B": 1}}, {"set": {"A": "\0"}}, {"unset": "A"}, {"set": 3}]
)
def test_what_cannot_be_a_variable_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(JobError, match=r"runtime\.environment"):
        applied(wrong, {})


@pytest.mark.parametrize(
    ("runtime", "ranks", "inherited", "threads"),
    [
        ({}, 1, None, None),
        ({}, 2, None, "1"),
        ({}, 2, "6", "6"),
        ({"omp_threads": 4}, 2, "6", "4"),
        ({"omp_threads": 4}, 1, None, "4"),
        ({"environment": {"set": {"OMP_NUM_THREADS": 3}}}, 2, None, "3"),
    ],
)
def test_threads_of_a_rank(
    monkeypatch: pytest.MonkeyPatch, runtime: dict[str, Any], ranks: int, inherited: str | None, threads: str | None
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if inherited is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", inherited)
    assert environment.for_agent(runtime, ranks).get("OMP_NUM_THREADS") == threads


@pytest.mark.parametrize(
    "card", ["proc/driver/nvidia/gpus/0000:01:00.0/information", "sys/class/kfd/kfd/topology/nodes/0/properties"]
)
def test_scripts_find_no_accelerator_where_the_cpu_is_chosen(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, card: str
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("HIP_VISIBLE_DEVICES", raising=False)
    (tmp_path / card).parent.mkdir(parents=True)
    (tmp_path / card).write_text("Model: card\nGPU UUID: GPU-1\nsimd_count 8\nlocation_id 256\ndomain 0\nunique_id 7\n")
    runtimes: dict[str, dict[str, Any]] = {
        "auto": {},
        "cpu": {"accelerator": "cpu"},
        "cpu, but": {
            "accelerator": "cpu",
            "environment": {"set": {"CUDA_VISIBLE_DEVICES": "0", "HIP_VISIBLE_DEVICES": "0"}},
        },
    }
    found = {
        name: len(visible.devices(environment.for_agent(runtime, 1), tmp_path)[1]) for name, runtime in runtimes.items()
    }
    assert found == {"auto": 1, "cpu": 0, "cpu, but": 1}


def test_relative_entries_of_the_import_path_mean_the_same_in_another_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["src", "", "/absolute"]))
    entries = environment.for_agent({}, 1)["PYTHONPATH"].split(os.pathsep)
    assert entries[:2] == [str(tmp_path / "src"), "/absolute"]
    assert entries[2:] in ([], [ROOT])


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_the_default_start_method_of_a_rank_is_still_the_scripts_to_change(launching: Launching, method: str) -> None:
    job = launching.job(
        """
        import multiprocessing, os
        if os.fork() == 0:  # asking fixes the answer, so a process of its own asks
            print(multiprocessing.get_start_method(), flush=True)
            os._exit(0)
        os.wait()
        multiprocessing.set_start_method("fork")
        print(multiprocessing.get_start_method())
        """,
        runtime={"start_method": method},
    )
    assert launching.rank(job).out == f"{method}\nfork\n"
