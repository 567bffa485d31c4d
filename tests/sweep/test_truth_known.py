# SPDX-License-Identifier: Apache-2.0
"""Forty sweeps whose truth is known: how often a group that does nothing is kept, and how often a gain is found."""

from __future__ import annotations

import functools
import json
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from turbo_hydra.sweep.rows import Toggle, design

if TYPE_CHECKING:
    from tests.sweep.simulation import Times

EFFECTS = {
    "x.nothing": 0.0,
    "x.nothing_too": 0.0,
    "x.one": 0.01,
    "x.three": 0.03,
    "x.three_too": 0.03,
    "x.ten": 0.10,
    "x.slower": -0.05,
}
SWEEPS = 40
# What real runs of tiny_vla on a busy machine took, step by step, divided by their common median.
RECORDED = Path(__file__).with_name("recorded_steps.json")


def replayed(draw: random.Random) -> Sequence[float]:
    """A stretch, half as long or longer, of the step times that a real run took."""
    times = draw.choice(_recorded())
    length = draw.randint(len(times) // 2, len(times))
    start = draw.randint(0, len(times) - length)
    return times[start : start + length]


@functools.cache
def _recorded() -> list[list[float]]:
    data: list[list[float]] = json.loads(RECORDED.read_text(encoding="utf-8"))["runs"]
    return data


def tally(times: Times | None, strategy: str = "leave_one_out") -> dict[str, Counter[str]]:
    from tests.sweep.simulation import Machine, autocorrelated, sweep

    made = design(strategy, [Toggle(id) for id in EFFECTS])
    found: dict[str, Counter[str]] = {contrast.name: Counter() for contrast in made.contrasts}
    for seed in range(SWEEPS):
        machine = Machine(EFFECTS, random.Random(seed), times or autocorrelated)
        judgement, _ = sweep(made, machine, most=192, follow=frozenset({"x.three", "x.three_too"}))
        for verdict in judgement.verdicts:
            found[verdict.contrast.name][verdict.verdict] += 1
    return found


@pytest.mark.parametrize("strategy", ["leave_one_out", "one_at_a_time", "cumulative"])
def test_planted_effects_on_a_simulated_clock(strategy: str) -> None:
    found = tally(None, strategy)
    kept = found["x.nothing"]["keep"] + found["x.nothing_too"]["keep"]
    assert kept <= 0.05 * 2 * SWEEPS, found
    three = found["x.three"]["keep"] + found["x.three_too"]["keep"]
    assert three >= 0.9 * 2 * SWEEPS, found
    assert found["x.ten"]["keep"] >= 0.95 * SWEEPS, found
    assert found["x.slower"]["keep"] == 0
    assert found["x.slower"]["drop"] >= 0.9 * SWEEPS, found


@pytest.mark.slow
def test_planted_effects_on_replayed_step_times() -> None:
    found = tally(replayed)
    kept = found["x.nothing"]["keep"] + found["x.nothing_too"]["keep"]
    assert kept <= 0.05 * 2 * SWEEPS, found
    three = found["x.three"]["keep"] + found["x.three_too"]["keep"]
    assert three >= 0.9 * 2 * SWEEPS, found
    assert found["x.slower"]["keep"] == 0


def test_a_machine_that_prefers_a_row_is_called_noisy_and_keeps_nothing() -> None:
    """The baseline's second run is 10 % slower each time: whatever does that may do it to any row."""
    from tests.sweep.simulation import Machine
    from turbo_hydra.sweep.judging import judge
    from turbo_hydra.sweep.settings import AblationSettings

    made = design("leave_one_out", [Toggle("x.ten"), Toggle("x.nothing")])
    machine = Machine({"x.ten": 0.1, "x.nothing": 0.0}, random.Random(0))
    results = {}
    for number in range(6):
        for row in made.rows:
            result = machine.run(row)
            if row.again:
                import dataclasses

                assert result.step_ms is not None
                result = dataclasses.replace(result, step_ms=1.1 * result.step_ms)
            results[row.name, number] = result
    judgement = judge(made, results, AblationSettings())
    assert judgement.noisy
    assert "keep" not in {verdict.verdict for verdict in judgement.verdicts}


def test_a_group_that_pays_only_with_another_is_found_by_pairs() -> None:
    from tests.sweep.simulation import Machine, sweep

    made = design("pairs", [Toggle("x.one"), Toggle("x.other"), Toggle("x.third")])
    effects = {"x.one": 0.0, "x.other": 0.0, "x.third": 0.05}
    found: Counter[str] = Counter()
    apart: Counter[str] = Counter()
    for seed in range(10):
        machine = Machine(effects, random.Random(seed), together={("x.one", "x.other"): 0.1})
        judgement, _ = sweep(made, machine, most=24)
        by_name = {verdict.contrast.name: verdict.verdict for verdict in judgement.verdicts}
        found[by_name["x.one and x.other"]] += 1
        apart[by_name["x.one and x.third"]] += 1
    assert found["gains together"] >= 9
    assert apart["gains together"] + apart["costs together"] <= 1
