# SPDX-License-Identifier: Apache-2.0
"""Distances of losses and typical step times, by hand."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbo_hydra.measure.comparing import LossDistance, Typical, loss_distance, rank_rows, typical_step
from turbo_hydra.measure.rows import StepRow


def losses(*values: float | None) -> list[StepRow]:
    return [StepRow(step, 0.0, loss=value) for step, value in enumerate(values)]


def test_distance_by_hand() -> None:
    found = loss_distance(losses(4.0, 2.0, 1.0, 0.5), losses(4.0, 2.02, 1.05, 0.5))
    assert found.steps == 4
    assert found.largest == pytest.approx(0.05)
    assert found.at == 2
    assert found.mean == pytest.approx(0.06 / 4)
    assert found.first == 1


def test_only_the_beginning_is_looked_at() -> None:
    assert loss_distance(losses(1.0, 1.0, 1.0), losses(1.0, 1.0, 9.0), steps=2) == LossDistance(2, 0.0, None, 0.0, None)


def test_steps_that_one_side_lacks_are_left_out() -> None:
    assert loss_distance(losses(1.0, None, 1.0, 1.0), losses(1.0, 5.0, 1.0)).steps == 2
    assert loss_distance(losses(), losses(1.0)).steps == 0


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [(math.nan, math.nan, 0.0), (math.nan, 1.0, math.inf), (math.inf, math.inf, 0.0), (1.0, -math.inf, math.inf)],
)
def test_losses_that_are_not_finite(one: float, other: float, expected: float) -> None:
    assert loss_distance(losses(one), losses(other)).largest == expected


@given(st.lists(st.floats(0.01, 100), min_size=1))
def test_a_run_has_no_distance_to_itself(values: list[float]) -> None:
    found = loss_distance(losses(*values), losses(*values))
    assert (found.largest, found.mean, found.first) == (0.0, 0.0, None)


def test_median_leaves_the_warm_up_out() -> None:
    rows = [
        StepRow(0, 0.0),
        *(StepRow(step, 0.0, ms=ms, cpu_ms=ms / 2) for step, ms in enumerate([90.0] + [10.0] * 9, 1)),
    ]
    assert typical_step(rows) == Typical(10.0, 5.0)
    with pytest.raises(ValueError, match="no steady step among 1"):
        typical_step(rows[:1])


def test_rows_of_a_rank_are_found_in_the_run(tmp_path: Path) -> None:
    folder = tmp_path / "turbo" / "ranks" / "1"
    folder.mkdir(parents=True)
    (folder / "steps.jsonl").write_text(StepRow(0, 1.0, loss=2.0).to_json() + "\n", encoding="utf-8")
    assert rank_rows(tmp_path, 1) == [StepRow(0, 1.0, loss=2.0)]
