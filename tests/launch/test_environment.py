# SPDX-License-Identifier: Apache-2.0
"""The ranks' environment and the compilers' folders."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest

import turbo_hydra
from turbo_hydra.launch import caches, environment
from turbo_hydra.launch.job import JobError

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


def test_relative_entries_of_the_import_path_mean_the_same_in_another_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["src", "", "/absolute"]))
    entries = environment.for_agent({}, 1)["PYTHONPATH"].split(os.pathsep)
    assert entries[:2] == [str(tmp_path / "src"), "/absolute"]
    assert entries[2:] in ([], [ROOT])


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_caches_are_private_and_shared_by_runs(tmp_path: Path) -> None:
    first: dict[str, str] = {}
    second: dict[str, str] = {}
    assert caches.prepare({"caches": {"dir": "kept"}}, str(tmp_path), first) == []
    assert caches.prepare({"caches": {"dir": str(tmp_path / "kept")}}, "/elsewhere", second) == []
    assert first == second
    assert first == {
        "TRITON_CACHE_DIR": str(tmp_path / "kept" / "triton"),
        "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "kept" / "inductor"),
    }
    assert {mode(Path(folder)) for folder in (*first.values(), str(tmp_path / "kept"))} == {0o700}


def test_a_folder_that_others_could_write_to_is_closed(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir(mode=0o777)
    (tmp_path / "open").chmod(0o777)
    caches.private_folder(tmp_path / "open")
    assert mode(tmp_path / "open") == 0o700


def test_the_users_own_folders_win(tmp_path: Path) -> None:
    variables = {"TRITON_CACHE_DIR": "mine"}
    caches.prepare({"caches": {"dir": "kept"}}, str(tmp_path), variables)
    assert variables["TRITON_CACHE_DIR"] == str(tmp_path / "mine")
    assert not (tmp_path / "kept" / "triton").exists()


@pytest.mark.parametrize("planted", ["file", "link", "foreign"])
def test_a_planted_folder_is_refused_and_the_run_goes_on(tmp_path: Path, planted: str) -> None:
    place = tmp_path / "kept"
    (tmp_path / "other").mkdir()
    if planted == "file":
        place.write_text("in the way")
    elif planted == "link":
        place.symlink_to(tmp_path / "other")
    else:
        if os.geteuid() != 0:
            pytest.skip("only root can give a folder away")
        place.mkdir()
        os.chown(place, 12345, 12345)
    variables: dict[str, str] = {}
    warnings = caches.prepare({"caches": {"dir": str(place)}}, "/", variables)
    assert len(warnings) == 2
    assert all("runtime.caches.dir" in warning and str(place) in warning for warning in warnings)
    for folder in map(Path, variables.values()):
        assert mode(folder) == 0o700
        assert tmp_path not in folder.parents
        folder.rmdir()
