# SPDX-License-Identifier: Apache-2.0
"""What is written of the steps, and what is shown."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbo_hydra.measure.history import History
from turbo_hydra.measure.progress import Bar, Lines, describe, open_progress
from turbo_hydra.measure.rows import StepRow, read_rows
from turbo_hydra.measure.settings import MeasureSettingsError
from turbo_hydra.measure.writers import open_writers

number = st.none() | st.floats(allow_nan=False)
rows_of_any_shape = st.builds(
    StepRow,
    step=st.integers(0),
    time=st.floats(0, 1e10),
    ms=number,
    cpu_ms=number,
    device_ms=number,
    data_ms=number,
    loss=number,
    losses=st.none() | st.lists(st.floats(allow_nan=False), min_size=2),
    grad_norm=number,
    samples=st.none() | st.integers(1),
    skipped=st.booleans(),
    compiled=st.booleans(),
    profiled=st.booleans(),
    peak_host_bytes=st.none() | st.integers(0),
)


@given(rows_of_any_shape)
def test_a_row_reads_back_as_it_was(row: StepRow) -> None:
    assert StepRow.from_json(row.to_json()) == row


@given(rows_of_any_shape)
def test_a_line_is_standard_json(row: StepRow) -> None:
    def refuse(word: str) -> None:
        raise AssertionError(word)

    json.loads(row.to_json(), parse_constant=refuse)


def test_flags_that_are_not_set_take_no_room() -> None:
    assert StepRow(0, 1.0, skipped=True).to_dict() == {
        "step": 0,
        "time": 1.0,
        "ms": None,
        "cpu_ms": None,
        "device_ms": None,
        "data_ms": None,
        "loss": None,
        "grad_norm": None,
        "samples": None,
        "skipped": True,
    }


def test_a_line_that_a_killed_rank_left_unfinished_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    whole = StepRow(0, 1.0, ms=2.0).to_json()
    path.write_text(f"{whole}\n{whole[: len(whole) // 2]}", encoding="utf-8")
    assert read_rows(path) == [StepRow(0, 1.0, ms=2.0)]


def test_a_row_of_a_later_version_is_read() -> None:
    assert StepRow.from_json('{"step": 1, "time": 2.0, "watts": 300}') == StepRow(1, 2.0)


def test_csv_has_the_same_columns(tmp_path: Path) -> None:
    writers = open_writers(["csv"], tmp_path)
    rows = [StepRow(0, 1.0, loss=0.5, losses=[0.25, 0.25]), StepRow(1, 2.0, ms=3.5, loss=math.inf, skipped=True)]
    for writer in writers:
        writer.write(rows)
        writer.close()
    with (tmp_path / "steps.csv").open(encoding="utf-8", newline="") as file:
        read = list(csv.DictReader(file))
    assert [row["loss"] for row in read] == ["0.5", "inf"]
    assert [row["losses"] for row in read] == ["0.25 0.25", ""]
    assert [row["ms"] for row in read] == ["", "3.5"]
    assert [row["skipped"] for row in read] == ["", "1"]
    assert read_rows(tmp_path / "steps.jsonl") == rows


def test_tensorboard_without_the_package_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "tensorboard" else find(name))
    with pytest.raises(MeasureSettingsError, match=r"asks for tensorboard, which is not installed; install"):
        open_writers(["tensorboard"], tmp_path)


def test_tensorboard_curves(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    writers = open_writers(["tensorboard"], tmp_path)
    for writer in writers:
        writer.write([StepRow(0, 1.0, loss=0.5), StepRow(1, 2.0, ms=3.5, loss=0.25)])
        writer.close()
    events = accumulator.EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [(event.step, event.value) for event in events.Scalars("step/loss")] == [(0, 0.5), (1, 0.25)]


def test_a_line_says_step_time_rate_and_loss() -> None:
    rows = [StepRow(8, 0.0, ms=40.0, samples=16, loss=1.0), StepRow(9, 0.0, ms=60.0, samples=16, loss=0.5)]
    assert describe(rows) == "step 10   50.0 ms   320 samples/s   loss 0.5000"
    assert describe([StepRow(0, 0.0)]) == "step 1"


def test_lines_come_at_their_interval_and_at_the_end() -> None:
    stream = io.StringIO()
    lines = Lines(stream, interval=1000)
    lines.show([StepRow(0, 0.0, loss=1.0)])
    assert stream.getvalue() == ""
    lines.show([StepRow(1, 0.0, ms=5.0, loss=0.5)])
    lines.close()
    assert stream.getvalue() == "step 2   5.0 ms   loss 0.5000\n"

    eager = Lines(stream, interval=0)
    eager.show([StepRow(2, 0.0)])
    eager.close()
    assert stream.getvalue().splitlines()[1:] == ["step 3"]


def test_the_bar_shows_the_last_row_and_gives_the_terminal_back() -> None:
    stream = io.StringIO()
    bar = Bar(stream)
    bar.show([StepRow(41, 0.0, ms=5.0, samples=1, loss=0.5)])
    bar.close()
    assert "step 42   5.0 ms   200 samples/s   loss 0.5000" in stream.getvalue()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("kind", "rank", "stream", "expected"),
    [
        ("auto", 0, Terminal(), Bar),
        ("auto", 0, io.StringIO(), Lines),
        ("lines", 0, Terminal(), Lines),
        ("bar", 0, io.StringIO(), Bar),
        ("auto", 1, Terminal(), type(None)),
        ("off", 0, Terminal(), type(None)),
    ],
)
def test_who_shows_what(kind: str, rank: int, stream: io.StringIO, expected: type[object]) -> None:
    progress = open_progress(kind, 10.0, rank, stream)
    assert type(progress) is expected
    if progress is not None:
        progress.close()


def rows_of(times: list[float]) -> list[StepRow]:
    return [StepRow(index, 0.0, ms=time, samples=4, loss=float(index)) for index, time in enumerate(times)]


def test_summary_tells_warm_up_from_steady_steps() -> None:
    history = History()
    history.add([StepRow(0, 0.0, samples=4, loss=9.0)])
    history.add(rows_of([100.0] + [10.0] * 10))
    summary = history.summary()
    assert summary["count"] == 12
    assert summary["warmup"] == {"steps": 2, "ms": 100.0}
    assert summary["steady"] == 10
    assert summary["median_ms"] == summary["p10_ms"] == summary["p90_ms"] == 10.0
    assert summary["samples_per_s"] == 400.0
    assert summary["first_loss"] == 9.0
    assert summary["last_loss"] == 10.0


def test_disturbed_steps_are_not_steady() -> None:
    history = History(warmup=1)
    rows = rows_of([10.0, 10.0, 500.0, 20.0, 700.0])
    rows[2].compiled = True
    rows[4].profiled = True
    history.add(rows)
    summary = history.summary()
    assert summary["steady"] == 2
    assert summary["median_ms"] == 15.0
    assert summary["compiled_steps"] == 1


def test_a_long_history_follows_at_the_latest_after_a_hundredth() -> None:
    history = History(warmup=0)
    history.add(rows_of([10.0] * 1000))
    assert history.summary()["steady"] == 1000
    history.add(rows_of([10.0] * 5))
    assert (history.summary()["count"], history.summary()["steady"]) == (1005, 1000)
    history.add(rows_of([10.0] * 10))
    assert history.summary()["steady"] == 1015
    history.add(rows_of([10.0]))
    history.finish()
    assert history.summary()["steady"] == 1016
