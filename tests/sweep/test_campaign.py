# SPDX-License-Identifier: Apache-2.0
"""The loop of a sweep, on a clock of its own: order, looks, budget, and what is left out."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from turbo_hydra.sweep.campaign import Campaign, Ended
from turbo_hydra.sweep.result import Result
from turbo_hydra.sweep.rows import Row, Toggle, design
from turbo_hydra.sweep.settings import AblationSettings
from turbo_hydra.sweep.store import Store

DESIGN = design("leave_one_out", [Toggle("x.fast"), Toggle("x.nothing"), Toggle("x.nothing_too")])
SECONDS = 10.0


def conduct(folder: Path, settings: AblationSettings, slower_from: int = 10**6) -> tuple[list[tuple[str, int]], Ended]:
    """The runs in order, each of ten seconds (a hundred from the given run on), and how it ended."""
    draw = random.Random(0)
    now = 0.0
    order: list[tuple[str, int]] = []
    store = Store(folder, {}, settings.loss_steps)

    def run(batch: Sequence[tuple[Row, int]]) -> list[Result]:
        nonlocal now
        seconds = SECONDS if len(order) < slower_from else 10 * SECONDS
        now += seconds
        found = []
        for row, number in batch:
            order.append((row.name, number))
            ms = (100.0 if "x.fast" in row.on else 150.0) * (1 + draw.gauss(0, 0.02))
            hits = {id: {"status": "applied", "reasons": [], "calls": 1} for id in row.on}
            result = Result("ok", seconds=seconds, step_ms=ms, losses=[1.0], hits=hits)
            store.put(row, number, result)
            found.append(result)
        return found

    ended = Campaign(DESIGN, settings, store, run, say=lambda text: None, clock=lambda: now).conduct()
    return order, ended


def test_each_round_has_every_row_once_in_an_order_of_its_own(tmp_path: Path) -> None:
    order, ended = conduct(tmp_path, AblationSettings(repeats=3))
    rounds = [[name for name, number in order if number == wanted] for wanted in range(3)]
    assert all(sorted(names) == sorted(row.name for row in DESIGN.rows) for names in rounds)
    assert len({tuple(names) for names in rounds}) == 3
    assert [number for _, number in order] == sorted(number for _, number in order)
    assert ended.complete
    assert conduct(tmp_path / "again", AblationSettings(repeats=3))[0] == order
    assert conduct(tmp_path / "other", AblationSettings(repeats=3, seed=1))[0] != order


def test_what_is_decided_at_a_look_runs_no_more(tmp_path: Path) -> None:
    order, ended = conduct(tmp_path, AblationSettings(repeats=12))
    words = {verdict.contrast.name: (verdict.verdict, verdict.look) for verdict in ended.judgement.verdicts}
    assert words["x.fast"][0] == "keep"
    look = words["x.fast"][1]
    assert look is not None
    counted = Counter(name for name, _ in order)
    assert counted["without x.fast"] == look
    assert counted["all"] == counted["all (again)"] == 12


def test_the_budget_is_kept_and_spent_where_it_decides(tmp_path: Path) -> None:
    """Three rounds of six rows are 180 s; of the 120 s that are left, three rounds of four rows use all."""
    order, ended = conduct(tmp_path, AblationSettings(repeats=12, budget=300))
    assert len(order) * SECONDS <= 300
    last = {name for name, number in order if number >= 3}
    assert {"all", "all (again)"} <= last
    # The row that nothing is judged by goes first.
    assert "none" not in last
    assert not ended.complete


def test_a_budget_too_small_for_the_first_look_says_so(tmp_path: Path) -> None:
    order, ended = conduct(tmp_path, AblationSettings(repeats=12, budget=100))
    assert len(order) == 10
    assert not ended.complete
    assert any("budget" in note for note in ended.notes)
    assert {verdict.verdict for verdict in ended.judgement.verdicts} == {"undecided", "same"}


def test_a_machine_that_becomes_slower_is_noticed_between_looks(tmp_path: Path) -> None:
    order, ended = conduct(tmp_path, AblationSettings(repeats=12, budget=2000), slower_from=24)
    assert not ended.complete
    assert max(number for _, number in order) < 12
    assert any("budget" in note for note in ended.notes)


def test_a_failed_baseline_ends_the_sweep(tmp_path: Path) -> None:
    store = Store(tmp_path, {}, 20)
    tried = []

    def run(batch: Sequence[tuple[Row, int]]) -> list[Result]:
        (row, number) = batch[0]
        tried.append(row.name)
        store.put(row, number, Result("failed", "it ended with status 1"))
        return [store.results[row.name, number]]

    ended = Campaign(DESIGN, AblationSettings(), store, run, say=lambda text: None).conduct()
    assert len(tried) == len(DESIGN.rows)
    assert any("baseline failed" in note for note in ended.notes)
