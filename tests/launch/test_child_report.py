# SPDX-License-Identifier: Apache-2.0
"""What children of a rank count is in the run's report, however they start and end, once."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.launch.test_merging import merged, rank_report
from tests.launch.test_optimized_ranks import FAST, OPTIMIZATION
from turbo_hydra.launch import merging, showing

if TYPE_CHECKING:
    from tests.launch.conftest import Launching
    from turbo_hydra.launch.job import Job

METHODS = ("fork", "spawn", "forkserver")
ONE_GROUP: dict[str, Any] = {**OPTIMIZATION, "groups": {"demo": {"fast": True}}, "force": ["demo.fast"]}


@pytest.fixture
def demo(launching: Launching) -> Launching:
    launching.script(
        'from turbo_hydra import group, replace\ngroup("demo.fast", replace("lib.slow", "fastlib.quick"))\n',
        "demo_catalog.py",
    )
    launching.script("def slow(number):\n    return f'slow {number}'\n", "lib.py")
    launching.script(FAST, "fastlib.py")
    return launching


def member(job: Job) -> dict[str, Any]:
    """The one member of the merged report."""
    found: dict[str, Any] = merging.read(job, 0)["execution"][0]["members"][0]
    return found


def files(job: Job) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in (job.rank_folder(0) / "children").glob("*")]


ENDS = """
    import multiprocessing, os, signal, sys, time
    from pathlib import Path
    from lib import slow

    TOLD = Path(sys.argv[2])

    def until_told():
        while not any(path.name.startswith(f"{os.getpid()}-") for path in TOLD.glob("*.json")):
            time.sleep(0.02)

    def work(end, times):
        for number in range(times):
            slow(number)
        if end == "sys.exit":
            sys.exit(3)
        if end == "raises":
            sys.stderr = open(os.devnull, "w")
            raise ValueError("on purpose")
        if end == "os._exit":
            until_told()
            os._exit(4)
        if end == "killed":
            until_told()
            os.kill(os.getpid(), signal.SIGKILL)
        if end == "has a child":
            run("returns", 100_000)

    def run(end, times):
        process = multiprocessing.get_context(sys.argv[1]).Process(target=work, args=(end, times), name=end)
        process.start()
        process.join()
        return process.exitcode

    if __name__ == "__main__":
        slow(0)
        ends = ["returns", "sys.exit", "raises", "os._exit", "killed", "has a child", "calls nothing"]
        print([run(end, 0 if end == "calls nothing" else 10**power) for power, end in enumerate(ends)])
        slow(0)
"""


@pytest.mark.parametrize("method", METHODS)
def test_a_child_is_counted_once_however_it_ends(demo: Launching, method: str) -> None:
    job = demo.job(ENDS, optimization=ONE_GROUP)
    children = str(job.rank_folder(0) / "children")
    job = demo.job(ENDS, model={"positional": [method, children]}, optimization=ONE_GROUP)
    ran = demo.rank(job)
    assert (ran.status, ran.out) == (0, "[0, 3, 1, 4, -9, 0, 0]\n"), ran.err
    assert "Traceback" not in ran.err
    counted = member(job)
    assert counted["hits_in_children"] == {"replacement": 211_111, "original": 0, "traced": 0, "reasons": {}}
    assert counted["hits"] == {"replacement": 211_113, "original": 0, "traced": 0, "reasons": {}}
    names = ["has a child", "killed", "os._exit", "raises", "returns", "returns", "sys.exit"]
    assert sorted(told["name"] for told in files(job)) == names


def test_a_fork_of_the_scripts_own_is_counted_where_it_ends_as_an_interpreter_does(demo: Launching) -> None:
    job = demo.job(
        """
        import os, sys
        from lib import slow
        slow(1)
        if os.fork() == 0:
            slow(2), slow(3)
            sys.exit(0)
        os.wait()
        """,
        optimization=ONE_GROUP,
    )
    assert demo.rank(job).status == 0
    assert (member(job)["hits"]["replacement"], member(job)["hits_in_children"]["replacement"]) == (3, 2)


def test_children_that_are_left_as_they_are_count_nothing(demo: Launching) -> None:
    script = """
        from multiprocessing import get_context
        from lib import slow
        if __name__ == "__main__":
            process = get_context("spawn").Process(target=slow, args=(1,))
            process.start()
            process.join()
    """
    job = demo.job(script, runtime={"children": False}, optimization=ONE_GROUP)
    assert demo.rank(job).status == 0
    assert files(job) == []
    assert "hits_in_children" not in member(job)


def child(rank: int, attempt: int = 0, **hits: int) -> dict[str, Any]:
    told = {"replacement": 0, "original": 0, "traced": 0, "reasons": {}, **hits}
    execution = [{"group": "demo.a", "members": [{"target": "lib.a", "hits": told}]}]
    return {"rank": rank, "attempt": attempt, "execution": execution}


def test_each_rank_has_its_own_children_and_those_of_an_attempt_before_are_gone() -> None:
    reports = [rank_report(0, attempt=1), rank_report(1, attempt=1)]
    children = [child(0, 1, replacement=3), child(0, 1, original=1), child(1, 1, replacement=5), child(1, 0, traced=7)]
    found = merged(*reports, children=children)["execution"][0]["members"][0]
    assert found["hits"] == {"replacement": 28, "original": 1, "traced": 0, "reasons": {}}
    assert found["hits_in_children"] == {"replacement": 8, "original": 1, "traced": 0, "reasons": {}}
    assert {rank: (hits["replacement"], hits["original"]) for rank, hits in found["hits_by_rank"].items()} == {
        "0": (13, 1),
        "1": (15, 0),
    }
    assert reports == [rank_report(0, attempt=1), rank_report(1, attempt=1)]


def test_what_only_children_call_is_not_told_as_never_called() -> None:
    alone = rank_report(0)
    alone["execution"][0]["members"][0]["hits"]["replacement"] = 0
    assert any("never called" in note for note in showing.notes(merged(alone)))
    report = merged(alone, children=[child(0, replacement=4)])
    assert not any("never called" in note for note in showing.notes(report))
    assert showing.rows(report)[0][-1] == "4, of them 4 in children"
    assert "| demo.a | `lib.a` | lib.py:3 | 4 | 0 | 0 | 4 | - |" in showing.markdown(report)


LOADER = """
    import sys, time
    from pathlib import Path
    import torch
    from torch.utils.data import DataLoader
    from lib import slow

    def collate(items):
        return slow(len(items))

    def loader(workers):
        return DataLoader(
            list(range(12)), 2, num_workers=workers, multiprocessing_context=sys.argv[1], collate_fn=collate
        )

    if __name__ == "__main__":
        for _ in range(2):  # workers come and go with each pass
            print(set(loader(2)))
        if sys.argv[2] == "open":  # the interpreter ends while a worker waits for work: it is killed
            left = iter(loader(1))
            print(next(left))
            pattern = f"ranks/0/children/{left._workers[0].pid}-*.json"
            while not any('"replacement": 3,' in path.read_text() for path in Path(sys.argv[3]).glob(pattern)):
                time.sleep(0.02)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("method", "end"), [("fork", "open"), ("spawn", "closed"), ("forkserver", "closed")])
def test_what_the_workers_of_a_data_loader_call_is_counted(demo: Launching, method: str, end: str) -> None:
    folder = str(demo.output / "turbo")
    job = demo.job(LOADER, model={"positional": [method, end, folder]}, optimization=ONE_GROUP)
    ran = demo.rank(job)
    assert (ran.status, ran.out.splitlines()[:2]) == (0, ["{'quick 2'}"] * 2), ran.err
    # Two passes of six batches; an open loader's worker has made two beyond the one that it was asked for.
    calls = 12 if end == "closed" else 12 + 3
    assert member(job)["hits"]["replacement"] == member(job)["hits_in_children"]["replacement"] == calls
