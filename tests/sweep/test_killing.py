# SPDX-License-Identifier: Apache-2.0
"""A sweep killed at any moment loses no finished row and repeats none; a folder belongs to one sweep at a time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from filelock import FileLock

from turbo_hydra.sweep.result import Result
from turbo_hydra.sweep.rows import Row
from turbo_hydra.sweep.settings import AblationError
from turbo_hydra.sweep.store import RESULT, STARTED, Store

if TYPE_CHECKING:
    from collections.abc import Iterator

WORKER = Path(__file__).with_name("killed.py")
RUNS = 18  # six rows, three rounds


def start(folder: Path, log: Path, root: Path) -> subprocess.Popen[bytes]:
    path = os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH", "")]))
    return subprocess.Popen(
        [sys.executable, str(WORKER), str(folder), str(log)],
        env={**os.environ, "PYTHONPATH": path, "PAUSE": "0.02"},
    )


def lines(log: Path) -> list[str]:
    return log.read_text(encoding="utf-8").splitlines() if log.exists() else []


def results(folder: Path) -> Iterator[tuple[str, bytes]]:
    for path in sorted(folder.glob(f"rows/*/*/{RESULT}")):
        yield str(path.relative_to(folder)), path.read_bytes()


@pytest.mark.parametrize("after", [1, 2, 7, 18, 29, 35])
def test_a_killed_sweep_goes_on_where_it_was(after: int, tmp_path: Path, project_root: Path) -> None:
    folder, log = tmp_path / "sweep", tmp_path / "log"
    worker = start(folder, log, project_root)
    deadline = time.monotonic() + 60
    while len(lines(log)) < after and worker.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    worker.send_signal(signal.SIGKILL)
    worker.wait()
    before = dict(results(folder))
    said = lines(log)
    again = start(folder, log, project_root)
    assert again.wait(60) == 0
    assert lines(log)[-1] == "done"
    now = dict(results(folder))
    assert len(now) == RUNS
    assert {name: now[name] for name in before} == before, "a finished result was changed"
    ended = Counter(line for line in lines(log) if line.startswith("ended"))
    # Of the run under way nobody can say whether it had ended when the kill came; all others ran once.
    under_way = [line for line in ended if ended[line] > 1]
    assert len(under_way) <= 1
    assert all(line not in said for line in under_way), "a run that had said that it ended was repeated"


def test_a_run_that_ended_before_its_result_was_written_is_taken(tmp_path: Path) -> None:
    from tests.sweep.killed import DESIGN, SETTINGS, store_in
    from turbo_hydra.launch import files

    store, row = store_in(tmp_path), DESIGN.rows[0]
    folder = store.begin(row, 0, 1.0)
    report = {"exit_status": 0, "execution": [], "steps": {"count": 5, "ranks": {"0": {"median_ms": 7.0}}}}
    files.write_json(folder / "turbo" / "report.json", report)
    found = store_in(tmp_path)
    found.load(DESIGN.rows, SETTINGS.repeats)
    assert found.results[row.name, 0].step_ms == 7.0
    assert (folder / RESULT).is_file()


@pytest.mark.parametrize("status", [143, 130, 129])
def test_a_run_that_was_ended_with_the_sweep_says_nothing_about_its_row(status: int, tmp_path: Path) -> None:
    from tests.sweep.killed import DESIGN, SETTINGS, store_in
    from turbo_hydra.launch import files

    folder = store_in(tmp_path).begin(DESIGN.rows[0], 0, 1.0)
    files.write_json(folder / "turbo" / "report.json", {"exit_status": status, "execution": [], "steps": {}})
    found = store_in(tmp_path)
    found.load(DESIGN.rows, SETTINGS.repeats)
    assert not found.results


def test_a_run_that_was_only_begun_is_begun_again(tmp_path: Path) -> None:
    from tests.sweep.killed import DESIGN, SETTINGS, store_in

    folder = store_in(tmp_path).begin(DESIGN.rows[0], 0, 1.0)
    assert (folder / STARTED).is_file()
    found = store_in(tmp_path)
    found.load(DESIGN.rows, SETTINGS.repeats)
    assert not found.results


def test_another_basis_finds_nothing(tmp_path: Path) -> None:
    row = Row("all", ("x.a",))
    Store(tmp_path, {"torch": "2.12"}, 20).put(row, 0, Result("ok", step_ms=1.0))
    same, other = Store(tmp_path, {"torch": "2.12"}, 20), Store(tmp_path, {"torch": "2.13"}, 20)
    for store in (same, other):
        store.load([row], 1)
    assert same.has(row, 0)
    assert not other.has(row, 0)


def test_results_from_two_machines_are_refused(tmp_path: Path) -> None:
    store = Store(tmp_path, {}, 20)
    store.put(Row("all", ()), 0, Result("ok", step_ms=1.0, facts={"host": "one"}))
    with pytest.raises(AblationError, match="host differ"):
        store.put(Row("none", ()), 0, Result("ok", step_ms=1.0, facts={"host": "two"}))


def test_a_folder_belongs_to_one_sweep(tmp_path: Path) -> None:
    with (
        FileLock(tmp_path / ".lock"),
        pytest.raises(AblationError, match="another sweep"),
        Store(tmp_path, {}, 20).locked(),
    ):
        pass
