# SPDX-License-Identifier: Apache-2.0
"""One report out of those of the ranks."""

from __future__ import annotations

import copy
import io
from typing import Any

import pytest

from turbo_hydra.launch import showing
from turbo_hydra.launch.merging import disagreements, merge


def rank_report(rank: int, **changes: Any) -> dict[str, Any]:
    """Return what a rank writes that applied one group, skipped one and was blocked from a third."""

    def member(target: str, **hits: int) -> dict[str, Any]:
        return {
            "target": target,
            "kind": "function",
            "place": "lib.py:3",
            "evidence": "source-v1",
            "hits": {"replacement": 0, "original": 0, "traced": 0, "reasons": {}, **hits},
            "stale_holders": [],
        }

    report = {
        "schema_version": "turbo_hydra/rank-report/v1",
        "run_id": "r",
        "rank": rank,
        "host": "node",
        "pid": 100 + rank,
        "status": "succeeded",
        "exit_status": 0,
        "optimization_config": {"groups": {"demo": {"a": True}}},
        "optimization_config_path": "/conf/demo.yaml",
        "runtime_config_path": None,
        "prepared_execution": {
            "environment": {"pid": 100 + rank, "python": "3.11.7", "versions": {"torch": "2.13.0"}},
            "checks": [
                {
                    "code": "evidence.changed",
                    "status": "fail",
                    "group": "demo.c",
                    "message": "'lib.c' is not the code that the group was validated against",
                    "place": "lib.py:9",
                    "expected": "ast-v1:1",
                    "actual": "ast-v1:2",
                }
            ],
        },
        "execution": [
            {
                "group": "demo.a",
                "purpose": "optimization",
                "decision": "apply",
                "status": "applied",
                "reasons": [],
                "members": [member("lib.a", replacement=10)],
            },
            {"group": "demo.b", "decision": "skip", "status": "skipped", "reasons": ["group_disabled"], "members": []},
            {
                "group": "demo.c",
                "decision": "block",
                "status": "blocked",
                "reasons": ["evidence.changed"],
                "members": [member("lib.c")],
            },
        ],
        "modules": {"lib": "/repo/lib.py"},
        "steps": {
            "count": 20 + rank,
            "median_ms": 10.0 + rank,
            "samples_per_s": 100.0,
            "first_loss": 2.0,
            "last_loss": 1.0,
        },
    }
    return {**copy.deepcopy(report), **changes}


def merged(*reports: dict[str, Any], **settings: Any) -> dict[str, Any]:
    given = {"run_id": "r", "expected": len(reports), "status": 0, **settings}
    return merge(reports, **given)


def test_the_report_has_the_fields_that_readers_rely_on() -> None:
    report = merged(rank_report(0), rank_report(1))
    assert list(report)[:13] == [
        "schema_version",
        "run_id",
        "status",
        "exit_status",
        "summary",
        "optimization_config",
        "optimization_config_path",
        "runtime_config_path",
        "prepared_execution",
        "execution",
        "ranks",
        "disagreements",
        "steps",
    ]
    assert report["summary"] == {
        "applied": 1,
        "skipped": 1,
        "blocked": 1,
        "failed": 0,
        "rolled_back": 0,
        "not_started": 0,
    }
    rank = {"rank": 1, "host": "node", "pid": 101, "status": "succeeded", "exit_status": 0, "bound": None}
    assert report["ranks"][1] == rank


def test_ranks_that_agree_have_no_disagreement_though_pids_and_hits_differ() -> None:
    second = rank_report(1)
    second["execution"][0]["members"][0]["hits"]["replacement"] = 8
    report = merged(rank_report(0), second)
    assert report["disagreements"] == []
    assert report["execution"][0]["members"][0]["hits"]["replacement"] == 18


def test_steps_add_up_and_the_slowest_rank_counts() -> None:
    steps = merged(rank_report(0), rank_report(1))["steps"]
    assert (steps["count"], steps["median_ms"], steps["samples_per_s"]) == (20, 11.0, 200.0)
    assert set(steps["ranks"]) == {"0", "1"}
    one, other = rank_report(0), rank_report(1)
    one["steps"] |= {"cpu_median_ms": 3.0, "data_wait_share": 0.5, "peak_memory": {"host_bytes": 7, "device": None}}
    other["steps"] |= {"cpu_median_ms": 4.0, "data_wait_share": 0.1, "peak_memory": {"host_bytes": 9, "device": None}}
    steps = merged(one, other)["steps"]
    assert (steps["cpu_median_ms"], steps["data_wait_share"]) == (4.0, 0.5)
    assert steps["peak_memory"] == {"host_bytes": 9, "device": None}
    assert merged(rank_report(0, steps={}))["steps"] == {}
    partly = rank_report(1)
    partly["steps"]["samples_per_s"] = None
    assert merged(rank_report(0), partly)["steps"]["samples_per_s"] is None


def change(path: list[Any], value: Any) -> dict[str, Any]:
    report = rank_report(3)
    place: Any = report
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return report


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        (["modules", "lib"], "/copy/lib.py", "modules.lib"),
        (["prepared_execution", "environment", "python"], "3.12.1", "environment.python"),
        (["prepared_execution", "environment", "versions", "torch"], "2.11.0", "environment.versions.torch"),
        (["optimization_config", "groups"], {}, "optimization_config"),
        (["execution", 0, "decision"], "block", "execution.demo.a.decision"),
        (["execution", 0, "status"], "rolled_back", "execution.demo.a.status"),
        (["execution", 2, "reasons"], ["signature"], "execution.demo.c.reasons"),
        (["execution", 0, "members", 0, "place"], "lib.py:4", "execution.demo.a.lib.a.place"),
        (["execution", 0, "members", 0, "evidence"], "forced", "execution.demo.a.lib.a.evidence"),
    ],
)
def test_a_rank_that_differs_is_named_with_the_field(path: list[Any], value: Any, field: str) -> None:
    before: Any = rank_report(0)
    for key in path:
        before = before[key]
    found = disagreements({0: rank_report(0), 3: change(path, value)})
    assert [item["field"] for item in found] == [field]
    expected = {"0": before, "3": value}
    if field == "optimization_config":
        expected = {"0": {"groups": before}, "3": {"groups": value}}
    assert found[0]["values"] == expected


def test_a_group_that_one_rank_lacks_is_a_disagreement_and_the_worst_status_is_the_runs() -> None:
    report = merged(rank_report(0), change(["execution", 0, "status"], "rolled_back"))
    assert report["execution"][0]["status"] == "rolled_back"
    assert (report["summary"]["applied"], report["summary"]["rolled_back"]) == (0, 1)


def test_one_rank_that_fell_back_is_told_from_the_others() -> None:
    alone = rank_report(1)
    alone["execution"][0]["members"][0]["hits"] = {
        "replacement": 0,
        "original": 10,
        "traced": 0,
        "reasons": {"dtype": 10},
    }
    member = merged(rank_report(0), alone, rank_report(2))["execution"][0]["members"][0]
    assert member["hits"] == {"replacement": 20, "original": 10, "traced": 0, "reasons": {"dtype": 10}}
    assert {rank: hits["replacement"] for rank, hits in member["hits_by_rank"].items()} == {"0": 10, "1": 0, "2": 10}


@pytest.mark.parametrize(
    ("report", "returncode", "status", "exit_status"),
    [
        (None, None, "missing", None),
        (None, -9, "killed", 137),
        (None, 2, "failed", 2),
        ({"status": "running", "exit_status": None}, -15, "killed", 143),
        ({"status": "running", "exit_status": None}, 5, "failed", 5),
        ({"status": "running", "exit_status": None}, None, "killed", None),
        ({"status": "succeeded", "exit_status": 0}, -11, "killed", 139),
        ({"status": "succeeded", "exit_status": 0}, 9, "failed", 9),
        ({"status": "strict_stop", "exit_status": 3}, 3, "strict_stop", 3),
        ({"status": "failed", "exit_status": 1}, 1, "failed", 1),
    ],
)
def test_the_end_of_a_rank_is_what_the_system_says_of_it(
    report: dict[str, Any] | None, returncode: int | None, status: str, exit_status: int | None
) -> None:
    reports = [rank_report(0)] + ([] if report is None else [rank_report(1, **report)])
    agents = [] if returncode is None else [{"ranks": {"1": {"pid": 101, "returncode": returncode}}}]
    found = merged(*reports, expected=2, status=1, agents=agents)["ranks"][1]
    assert (found["status"], found["exit_status"]) == (status, exit_status)


@pytest.mark.parametrize(
    ("status", "of_rank", "word"),
    [
        (0, "succeeded", "succeeded"),
        (1, "failed", "failed"),
        (3, "strict_stop", "strict_stop"),
        (3, "failed", "failed"),
        (137, "killed", "killed"),
    ],
)
def test_the_runs_status_in_a_word(status: int, of_rank: str, word: str) -> None:
    assert merged(rank_report(0, status=of_rank), status=status)["status"] == word


def test_no_rank_reported() -> None:
    report = merged(expected=2, status=2)
    assert [rank["status"] for rank in report["ranks"]] == ["missing", "missing"]
    assert report["execution"] == []
    assert "rank 1 missing" in showing.markdown(report)


def test_what_is_printed_can_be_searched() -> None:
    stream = io.StringIO()
    showing.show(merged(rank_report(0), rank_report(1)), "out/turbo", stream)
    lines = stream.getvalue().splitlines()
    assert [line.split() for line in lines[:4]] == [
        ["group", "decision", "status", "why", "hits"],
        ["demo.a", "apply", "applied", "-", "20"],
        ["demo.b", "skip", "skipped", "group_disabled", "-"],
        ["demo.c", "block", "blocked", "evidence.changed", "-"],
    ]
    assert "demo.c: 'lib.c' is not the code that the group was validated against (lib.py:9)" in lines
    assert "applied=1 skipped=1 blocked=1 failed=0 rolled_back=0 not_started=0" in lines
    assert any("samples/s=200.0" in line for line in lines)


def test_a_terminal_gets_a_table() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    showing.show(merged(rank_report(0)), "out/turbo", stream)
    assert "demo.a" in stream.getvalue()
    assert "│" in stream.getvalue()
    assert "applied=1 skipped=1" in stream.getvalue()


def test_the_written_report_says_what_was_expected_and_found_and_where() -> None:
    text = showing.markdown(merged(rank_report(0), change(["modules", "lib"], "/copy/lib.py"), status=0))
    assert "(lib.py:9); expected `ast-v1:1`, found `ast-v1:2`" in text
    assert "ranks disagree on modules.lib: rank 0: /repo/lib.py, rank 3: /copy/lib.py" in text


def test_an_applied_group_that_was_never_called_is_told() -> None:
    report = rank_report(0)
    report["execution"][0]["members"][0]["hits"]["replacement"] = 0
    assert "demo.a: applied, and never called: lib.a" in showing.notes(merged(report))
    assert not any("never called" in note for note in showing.notes(merged({**report, "steps": {}})))
