# SPDX-License-Identifier: Apache-2.0
"""From results to verdicts: by hand, by scipy, and what settles a group whatever its speed."""

from __future__ import annotations

import dataclasses
import math
import re
from typing import Any

import pytest
from scipy import stats

from turbo_hydra.measure.sequential import pocock_level
from turbo_hydra.sweep.faults import takes_memory
from turbo_hydra.sweep.judging import judge
from turbo_hydra.sweep.result import OUT_OF_MEMORY, Result
from turbo_hydra.sweep.rows import Design, Toggle, design
from turbo_hydra.sweep.settings import AblationSettings
from turbo_hydra.sweep.verdicts import Judgement, Verdict

ONE = design("leave_one_out", [Toggle("x.a", numerics="bitwise")])
# Scatter of six rounds, in percent.
NOISE = (0.3, -0.2, 0.1, -0.4, 0.2, 0.0)


def result(row: Any, ms: float, **more: Any) -> Result:
    hits = {id: {"status": "applied", "reasons": [], "calls": 9} for id in row.on}
    return Result("ok", **{"step_ms": ms, "cpu_ms": ms / 2, "losses": [1.0, 0.5], "hits": hits, **more})


def run(
    made: Design,
    gain: float,
    rounds: int = 6,
    settings: AblationSettings | None = None,
    change: dict[str, Any] | None = None,
) -> Judgement:
    """Rows with all groups on are faster by `gain`; `change` maps a row's name to what is different in its results."""
    results = {}
    for number in range(rounds):
        for place, row in enumerate(made.rows):
            ms = 100 * (1 + 0.01 * NOISE[(number + place) % 6]) / ((1 + gain) if "x.a" in row.on else 1)
            results[row.name, number] = dataclasses.replace(result(row, ms), **(change or {}).get(row.name, {}))
    return judge(made, results, settings or AblationSettings())


def verdict(found: Judgement, name: str = "x.a") -> Verdict:
    return next(item for item in found.verdicts if item.contrast.name == name)


def test_a_gain_is_kept_and_its_interval_is_students() -> None:
    found = verdict(run(ONE, 0.05))
    assert found.verdict == "keep"
    assert found.look == 3
    times = [[1 + 0.01 * NOISE[(number + place) % 6] for place in range(3)] for number in range(6)]
    logs = [math.log(1.05 * none / math.sqrt(one * again)) for one, again, none in times]
    low, high = stats.t.interval(0.95, 5, loc=sum(logs) / 6, scale=stats.sem(logs))
    assert found.gain is not None
    assert (found.gain.low, found.gain.high) == pytest.approx((math.exp(low), math.exp(high)))
    assert found.p_value == pytest.approx(float(stats.ttest_1samp(logs[:3], 0).pvalue))


def test_a_loss_is_dropped() -> None:
    found = verdict(run(ONE, -0.05))
    assert (found.verdict, found.look) == ("drop", 3)
    assert "slower" in found.why


def test_no_gain_of_interest_is_dropped_once_it_is_excluded() -> None:
    settings = AblationSettings(smallest=0.03)
    found = verdict(run(ONE, 0.0, settings=settings))
    assert found.verdict == "drop"
    assert "excluded" in found.why


def test_undecided_says_how_many_rounds_would_decide() -> None:
    found = verdict(run(ONE, 0.006, rounds=3, settings=AblationSettings(smallest=0.001)))
    assert found.verdict == "undecided"
    assert found.repeats in {6, 12, 24}
    assert str(found.repeats) in found.why


def test_before_the_first_look_there_is_no_verdict() -> None:
    found = verdict(run(ONE, 0.5, rounds=2))
    assert (found.verdict, found.repeats) == ("undecided", 3)


def test_what_a_look_decided_stays_decided() -> None:
    """Rounds after the look at which a group was kept do not take the verdict back."""
    results: dict[tuple[str, int], Result] = {}
    for number in range(6):
        for row in ONE.rows:
            slower = "x.a" not in row.on and number < 3
            results[row.name, number] = result(row, 110.0 + 0.01 * number if slower else 100.0)
    assert verdict(judge(ONE, results, AblationSettings())).verdict == "keep"


def test_fewer_repeats_change_no_bound_and_more_do() -> None:
    assert AblationSettings(repeats=3).planned == (3, 6, 12)
    assert AblationSettings(repeats=24).planned == (3, 6, 12, 24)
    assert AblationSettings(repeats=20).planned == (3, 6, 12, 20)
    assert run(ONE, 0.0).level == pocock_level((3, 6, 12))


@pytest.mark.parametrize("metric", ["step", "cpu"])
def test_the_metric_decides_which_time_is_judged(metric: str) -> None:
    fast_without = {"none": {"cpu_ms": 1.0}}
    found = verdict(run(ONE, 0.05, settings=AblationSettings(metric=metric), change=fast_without))
    assert found.verdict == ("keep" if metric == "step" else "drop")


@pytest.mark.parametrize(
    ("numerics", "losses", "expected"),
    [
        ("bitwise", [1.0, 0.5], "keep"),
        ("bitwise", [1.0, 0.5000001], "broken"),
        ("close", [1.0, 0.5000001], "keep"),
        ("close", [1.0, 0.5005], "broken"),
        ("changes training", [1.0, 0.9], "keep"),
        ("changes training", [1.0, math.nan], "broken"),
        ("close", [1.0, math.inf], "broken"),
    ],
)
def test_the_declared_class_is_enforced(numerics: str, losses: list[float], expected: str) -> None:
    made = design("leave_one_out", [Toggle("x.a", numerics=numerics), Toggle("x.b", numerics="changes training")])
    with_a = {name: {"losses": losses} for name in ("all", "all (again)", "without x.b")}
    found = verdict(run(made, 0.05, change=with_a))
    assert found.verdict == expected, found.why
    assert found.numerics is not None
    assert found.numerics.declared == numerics


def test_a_training_that_does_not_repeat_itself_is_told_and_held_to_its_own_scatter() -> None:
    made = run(ONE, 0.05, change={"all (again)": {"losses": [1.0, 0.5001]}, "none": {"losses": [1.0, 0.50015]}})
    assert made.determinism.first == 1
    assert verdict(made).verdict == "keep"
    far = run(ONE, 0.05, change={"all (again)": {"losses": [1.0, 0.5001]}, "none": {"losses": [1.0, 0.51]}})
    assert verdict(far).verdict == "broken"


def test_without_losses_nothing_is_kept() -> None:
    names = ("all", "all (again)", "none")
    found = verdict(run(ONE, 0.05, change={name: {"losses": []} for name in names}))
    assert found.verdict == "undecided"
    assert "no losses" in found.why


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"status": "applied", "reasons": [], "calls": 0}, "never called"),
        ({"status": "blocked", "reasons": ["evidence.changed"], "calls": None}, "blocked \\(evidence.changed\\)"),
    ],
)
def test_a_group_that_is_not_used_is_broken(said: dict[str, Any], why: str) -> None:
    hits = {"hits": {"x.a": said}}
    found = verdict(run(ONE, 0.5, change={"all": hits, "all (again)": hits}))
    assert found.verdict == "broken"
    assert re.search(why, found.why)


def test_calls_that_nobody_counts_are_no_fault() -> None:
    hits: dict[str, Any] = {"hits": {"x.a": {"status": "applied", "reasons": [], "calls": None}}}
    assert verdict(run(ONE, 0.05, change={"all": hits})).verdict == "keep"


def test_a_failed_row_is_a_result_and_memory_names_who_takes_it() -> None:
    made = design(
        "one_at_a_time", [Toggle("x.a", memory="keeps all activations: 0.3 GiB"), Toggle("x.b", memory="less")]
    )
    failed = {"only x.a": {"status": "failed", "reason": OUT_OF_MEMORY}}
    found = verdict(run(made, 0.05, change=failed))
    assert found.verdict == "broken"
    assert "out of memory" in found.why
    assert "x.a" in found.why.partition("take memory")[2]
    assert "x.b" not in found.why


def test_a_row_that_fails_without_its_group_is_not_the_groups_fault() -> None:
    found = verdict(run(ONE, 0.05, change={"none": {"status": "failed", "reason": OUT_OF_MEMORY}}))
    assert found.verdict == "undecided"
    assert "'none' failed" in found.why


@pytest.mark.parametrize(
    ("about", "takes"),
    [("none", False), ("less: never stored", False), ("keeps all: 0.3 GiB", True), ("no more than before", False)],
)
def test_who_says_that_he_takes_memory(about: str, takes: bool) -> None:
    assert takes_memory(about) is takes
