# SPDX-License-Identifier: Apache-2.0
"""`ablation.json` and what is rendered from it."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import math
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

from turbo_hydra.engine.errors import OptimizationConfigError
from turbo_hydra.sweep import files, picture, tables
from turbo_hydra.sweep.judging import judge
from turbo_hydra.sweep.outcome import to_data
from turbo_hydra.sweep.result import Result
from turbo_hydra.sweep.rows import Toggle, design
from turbo_hydra.sweep.settings import AblationSettings

DESIGN = design("leave_one_out", [Toggle("x.fast"), Toggle("x.wrong", numerics="bitwise"), Toggle("x.unused")])
SLOWER = {"x.fast": 1.2, "x.wrong": 1.1, "x.unused": 1.0}


def data(rounds: int = 3, **failed: str) -> dict[str, Any]:
    results = {}
    for number in range(rounds):
        for place, row in enumerate(DESIGN.rows):
            ms = 100 * (1 + 0.001 * ((7 * number + 3 * place) % 5))
            for id, factor in SLOWER.items():
                ms *= 1.0 if id in row.on else factor
            hits: dict[str, Any] = {
                id: {"status": "applied", "reasons": [], "calls": 0 if id == "x.unused" else 4} for id in row.on
            }
            loss: list[float | None] = [1.0, 0.5 if "x.wrong" in row.on else math.inf]
            reason = failed.get(row.name.replace(" ", "_"))
            results[row.name, number] = (
                Result("failed", reason)
                if reason
                else Result("ok", step_ms=ms, losses=loss, hits=hits, peak_host_bytes=2**30, samples_per_s=1600 / ms)
            )
    settings = AblationSettings()
    found = to_data(
        DESIGN,
        results,
        settings,
        judge(DESIGN, results, settings),
        model="m",
        basis={"device": {"cpu": "a CPU", "cpus": 2, "accelerators": []}, "versions": {"torch": "2.13.0"}},
        complete=True,
    )
    again: dict[str, Any] = json.loads(json.dumps(found, allow_nan=False))
    return again


def test_the_data_is_plain_and_says_everything() -> None:
    found = data()
    assert found["schema_version"] == "turbo_hydra/ablation/v1"
    words = {verdict["name"]: verdict["verdict"] for verdict in found["verdicts"]}
    assert words == {"x.fast": "keep", "x.wrong": "broken", "x.unused": "broken", "all (again)": "same"}
    rows = {row["name"]: row for row in found["rows"]}
    assert rows["without x.fast"]["judges"] == "x.fast"
    assert rows["none"]["judges"] is None
    assert rows["without x.fast"]["ratio"]["value"] == pytest.approx(1 / 1.2, rel=0.01)
    assert rows["all"]["ratio"] is None
    assert rows["without x.wrong"]["loss"]["largest"] is None  # infinite
    assert rows["without x.wrong"]["off"] == ["x.wrong"]


def test_an_interval_of_one_round_has_no_ends() -> None:
    (gain,) = [verdict["gain"] for verdict in data(1)["verdicts"] if verdict["name"] == "x.fast"]
    assert (gain["low"], gain["high"], gain["rounds"]) == (None, None, 1)


def test_markdown_has_the_verdicts_the_rows_and_the_machine() -> None:
    text = tables.markdown(data(), "ablation.svg")
    lines = text.splitlines()
    (fast,) = [line for line in lines if line.startswith("| x.fast ")]
    cells = [cell.strip() for cell in fast.strip("|").split("|")]
    assert cells[1].startswith("+20")
    assert cells[3:5] == ["keep", "close: holds (0)"]
    assert any("![" in line and "(ablation.svg)" in line for line in lines)
    assert "x.unused was applied and never called" in text
    assert "infinite" in text
    assert "a CPU, 2 CPUs" in text
    assert len({line.count("|") for line in lines if line.startswith("| ") and "x." in line}) == 2  # two whole grids


def test_a_failed_row_is_in_the_table_with_its_reason() -> None:
    found = data(without_x_unused="", none="out of memory")
    text = tables.markdown(found)
    assert "none failed: out of memory" in text
    rows = {row["name"]: row for row in found["rows"]}
    assert (rows["none"]["failed"], rows["none"]["step_ms"]) == ("out of memory", None)


def test_comma_separated_values_are_the_numbers_themselves() -> None:
    found = data()
    read = {row["name"]: row for row in csv.DictReader(io.StringIO(tables.comma_separated(found)))}
    row = next(row for row in found["rows"] if row["name"] == "without x.fast")
    assert float(read["without x.fast"]["step_ms"]) == row["step_ms"]
    assert float(read["without x.fast"]["speed_value"]) == row["ratio"]["value"]
    assert read["without x.fast"]["verdict"] == "keep"
    assert read["all"]["groups_on"].split() == ["x.fast", "x.wrong", "x.unused"]


def test_the_picture_has_a_bar_and_a_label_for_each_verdict(tmp_path: Path) -> None:
    paths = picture.draw(data(), tmp_path)
    assert [path.name for path in paths] == ["ablation.svg", "ablation.png"]
    texts = {node.text for node in ElementTree.parse(paths[0]).iter() if node.tag.endswith("text")}
    assert {"x.fast", "x.wrong", "x.unused", "baseline, run twice", "keep", "broken"} <= texts
    assert paths[1].read_bytes()[:4] == b"\x89PNG"


def test_the_colours_of_verdicts_are_told_apart_in_grey_by_shape() -> None:
    keep, drop, undecided, broken = (picture.STYLES[word] for word in ("keep", "drop", "undecided", "broken"))
    assert len({style[1] for style in (keep, drop, undecided, broken)}) == 4
    assert len({style[2] for style in (keep, drop, undecided, broken)}) == 4


def test_without_matplotlib_there_is_a_sentence_and_all_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    said = files.write(tmp_path, data())
    assert said is not None
    assert "turbo_hydra[plot]" in said
    assert {path.name for path in tmp_path.iterdir()} == {"ablation.json", "ablation.md", "ablation.csv"}


def opt(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "turbo_hydra.cli.opt", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_turbo_opt_report_of_one_sweep_of_two_and_of_what_is_none(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for folder in (one, other):
        files.write(folder, data(), drawn=False)
    shown = opt("report", str(one))
    assert shown.returncode == 0, shown.stderr
    assert "x.fast" in shown.stdout
    assert (one / "ablation.png").is_file()
    beside = opt("report", str(one), str(other))
    (line,) = [line for line in beside.stdout.splitlines() if line.startswith("x.fast")]
    assert line.count("keep") == 2
    assert json.loads(opt("report", "--json", str(one)).stdout)["model"] == "m"
    (tmp_path / "run").mkdir()
    mixed = opt("report", str(one), str(tmp_path / "run"))
    assert mixed.returncode == 2
    assert "is no ablation" in mixed.stderr


def test_a_file_of_another_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ablation.json"
    path.write_text('{"schema_version": "turbo_hydra/ablation/v2"}', encoding="utf-8")
    with pytest.raises(OptimizationConfigError, match="ablation/v2"):
        files.read(path)
