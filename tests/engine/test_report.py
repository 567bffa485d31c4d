# SPDX-License-Identifier: Apache-2.0
"""The report: its keys are an interface; it is plain data, always current, and readable."""

from __future__ import annotations

import json
import os
import stat
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from turbo_hydra import About
from turbo_hydra.engine.report import STATUSES, hits_text, to_markdown, write_json_atomic

if TYPE_CHECKING:
    from tests.engine.conftest import Lab

# Frozen: whoever changes one of these changes what other programs read.
KEYS = {
    "": [
        "schema_version",
        "run_id",
        "summary",
        "optimization_config",
        "optimization_config_path",
        "runtime_config_path",
        "prepared_execution",
        "execution",
    ],
    "summary": ["applied", "skipped", "blocked", "failed", "rolled_back", "not_started"],
    "prepared_execution": ["environment", "groups", "conflicts", "execution_order", "checks", "imports_stay"],
    "prepared_execution.environment": [
        "host",
        "pid",
        "python",
        "executable",
        "platform",
        "backend",
        "versions",
        "repository",
    ],
    "prepared_execution.groups.0": [
        "group",
        "purpose",
        "catalog",
        "place",
        "about",
        "depends_on",
        "options",
        "decision",
        "reasons",
        "members",
    ],
    "prepared_execution.groups.0.members.0": ["target", "kind", "replacement"],
    "prepared_execution.groups.0.about": [
        "why",
        "purpose",
        "memory",
        "numerics",
        "validated",
        "backward",
        "compile",
        "compiles",
        "until",
    ],
    "prepared_execution.conflicts.0": ["groups", "targets", "reason"],
    "prepared_execution.checks.0": [
        "code",
        "status",
        "group",
        "target",
        "expected",
        "actual",
        "place",
        "forceable",
        "message",
    ],
    "execution.0": ["group", "purpose", "observer", "status", "decision", "reasons", "error", "members"],
    "execution.0.members.0": [
        "target",
        "kind",
        "member",
        "replacement",
        "place",
        "evidence",
        "observer",
        "pending",
        "shared_with",
        "hits",
        "shadow",
        "rebound",
        "stale_holders",
    ],
    "execution.0.members.0.hits": ["replacement", "original", "traced", "reasons"],
}


@pytest.fixture
def reported(lab: Lab) -> Lab:
    lab.write("lib", "def f(x):\n    return 1\ndef g(x):\n    return 1\ndef h(x):\n    return 1\n")
    lab.write("new", "def f(x):\n    return 2\ndef g(x):\n    return 3\n")
    lab.group("it", lab.replace("lib.f", "new.f"), about=About(why="faster"))
    lab.group("one", lab.replace("lib.g", "new.f"))
    lab.group("two", lab.replace("lib.g", "new.g"))
    lab.group("changed", lab.replace("lib.h", "new.f"))
    lab.group("off", lab.replace("lib.h", "new.g"))
    lab.record()
    lab.evidence.pop(lab.path("lib.h"))
    groups = {f"lab.{name}": name != "off" for name in ("it", "one", "two", "changed", "off")}
    lab.apply(groups=groups, evidence=dict(lab.evidence))
    return lab


def at(data: Any, path: str) -> Any:
    for part in path.split(".") if path else ():
        data = data[int(part)] if part.isdigit() else data[part]
    return data


@pytest.mark.parametrize("path", KEYS)
def test_the_keys_are_frozen(reported: Lab, path: str) -> None:
    assert list(at(reported.engines[-1].report.to_dict(), path)) == KEYS[path]


def test_the_values_are_plain_json(reported: Lab) -> None:
    data = reported.engines[-1].report.to_dict()
    assert json.loads(json.dumps(data)) == data
    assert data["schema_version"] == "turbo_hydra/report/v1"
    assert data["run_id"] == "lab"


def test_the_summary_counts_the_groups(reported: Lab) -> None:
    report = reported.engines[-1].report
    assert report.summary == {
        "applied": 1,
        "skipped": 1,
        "blocked": 3,
        "failed": 0,
        "rolled_back": 0,
        "not_started": 0,
    }
    assert tuple(report.summary) == STATUSES
    assert report.summary_line() == "applied=1 skipped=1 blocked=3 failed=0 rolled_back=0 not_started=0"


def test_reading_again_gives_the_hits_as_they_are(reported: Lab) -> None:
    report = reported.engines[-1].report
    first = report.to_dict()
    reported.load("lib").f(1)
    assert at(first, "execution.0.members.0.hits.replacement") == 0
    assert at(report.to_dict(), "execution.0.members.0.hits.replacement") == 1


def test_a_member_says_where_its_original_stands_and_what_spoke_for_it(reported: Lab) -> None:
    member = reported.member()
    assert member["target"] == reported.path("lib.f")
    assert (member["kind"], member["member"], member["evidence"]) == ("function", "replace", "source-v1")
    assert member["place"] == f"{reported.folder / reported.package / 'lib.py'}:1"


def test_the_markdown_names_every_group_and_what_stands_against_it(reported: Lab) -> None:
    text = reported.engines[-1].report.to_markdown()
    for name, status in (("it", "applied"), ("one", "blocked"), ("changed", "blocked"), ("off", "skipped")):
        assert f"| lab.{name} | optimization | {status} |" in text
    assert "applied=1 skipped=1 blocked=3" in text
    assert "`lab.changed` evidence.missing: no evidence was recorded" in text
    assert "`lab.one` conflict: " in text
    assert "| 0 / 0 / 0 |" in text
    assert text.endswith("\n")


def test_the_markdown_is_made_of_the_data_alone(reported: Lab) -> None:
    report = reported.engines[-1].report
    assert to_markdown(json.loads(json.dumps(report.to_dict()))) == report.to_markdown()


def test_hits_of_several_members_stand_side_by_side() -> None:
    hits = {"replacement": 1, "original": 2, "traced": 3, "reasons": {}}
    assert hits_text({"members": [{"hits": hits}, {"hits": None}, {"hits": hits}]}) == "1 / 2 / 3; 1 / 2 / 3"
    assert hits_text({"members": []}) == "-"


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    write_json_atomic(path, {"n": 0, "text": "é"})
    assert json.loads(path.read_text(encoding="utf-8")) == {"n": 0, "text": "é"}
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o644
    circular: list[Any] = []
    circular.append(circular)
    with pytest.raises(ValueError, match="Circular"):
        write_json_atomic(path, circular)
    assert json.loads(path.read_text(encoding="utf-8"))["n"] == 0
    assert [item.name for item in tmp_path.iterdir()] == ["report.json"]


def test_a_reader_never_sees_a_part(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    write_json_atomic(path, list(range(1000)))
    done = threading.Event()

    def write() -> None:
        for number in range(50):
            write_json_atomic(path, list(range(number, number + 5000)))
        done.set()

    thread = threading.Thread(target=write)
    thread.start()
    reads = 0
    while not done.is_set() or reads == 0:
        found = json.loads(path.read_text(encoding="utf-8"))
        assert len(found) in (1000, 5000)
        reads += 1
    thread.join()


def test_a_write_that_fails_leaves_no_temporary_file(tmp_path: Path) -> None:
    target = tmp_path / "report.json"
    target.mkdir()
    with pytest.raises(IsADirectoryError):
        write_json_atomic(target, {})
    assert [item.name for item in tmp_path.iterdir()] == ["report.json"]
