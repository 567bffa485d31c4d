# SPDX-License-Identifier: Apache-2.0
"""What `benchmarks/openpi_numerics.py` makes of losses; the expected figures are worked out by hand."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from turbo_hydra.measure.rows import StepRow

UPSTREAM = [1.0, 2.0, 4.0]
# 0, 1 and 2 % from it: 1 % in the mean, 2 % at most.
AGAIN = [1.0, 2.02, 4.08]


@pytest.fixture
def compared() -> Any:
    # The suite runs with PYTHONSAFEPATH, which keeps the current folder, and with it the benchmarks, off the path.
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).resolve().parents[2]))
        return importlib.import_module("benchmarks.openpi_numerics").compared


def run(losses: list[float]) -> list[StepRow]:
    return [StepRow(step, 0.0, loss=loss) for step, loss in enumerate(losses)]


@pytest.mark.parametrize(
    ("losses", "mean", "largest", "holds"),
    [
        (UPSTREAM, 0.0, 0.0, True),
        (AGAIN, 0.01, 0.02, True),
        ([1.0, 1.96, 4.0], 0.02 / 3, 0.02, True),
        ([0.97, 2.0, 4.0], 0.01, 0.03, False),
        ([1.02, 2.0, 4.08], 0.04 / 3, 0.02, False),
    ],
)
def test_a_row_holds_that_is_no_further_than_upstream_from_upstream(
    compared: Any, losses: list[float], mean: float, largest: float, holds: bool
) -> None:
    found = compared({"upstream": {1: run(UPSTREAM)}, "again": {1: run(AGAIN)}, "row": {1: run(losses)}}, ["again"])
    assert found["row"]["mean"] == pytest.approx(mean)
    assert found["row"]["largest"] == pytest.approx(largest)
    assert found["row"]["holds"] is holds


def test_the_farthest_of_upstreams_runs_counts_in_each_measure(compared: Any) -> None:
    losses = {
        "upstream": {1: run([1.0, 1.0])},
        "even": {1: run([1.02, 1.02])},
        "odd": {1: run([1.0, 1.03])},
        "row": {1: run([1.01, 1.03])},
    }
    found = compared(losses, ["even", "odd"])
    assert found["row"]["allowed"] == pytest.approx({"mean": 0.02, "largest": 0.03})
    assert found["row"]["holds"] is True


def test_distances_are_averaged_over_the_seeds_that_all_have_been_run_with(compared: Any) -> None:
    losses = {
        "upstream": {1: run([1.0]), 2: run([1.0]), 3: run([1.0])},
        "again": {1: run([1.01]), 2: run([1.03])},
        "row": {1: run([1.03]), 2: run([1.01]), 3: run([2.0])},
        "late": {3: run([1.0])},
    }
    found = compared(losses, ["again"])
    assert found["row"]["mean"] == pytest.approx(0.02)
    assert found["row"]["holds"] is True
    assert sorted(found["row"]["seeds"]) == [1, 2, 3]
    assert "holds" not in found["late"]


def test_a_run_that_ended_early_holds_nothing(compared: Any) -> None:
    losses = {"upstream": {1: run(UPSTREAM)}, "again": {1: run(AGAIN)}, "row": {1: run(UPSTREAM[:2])}}
    assert "holds" not in compared(losses, ["again"])["row"]
    losses["again"] = {1: run(AGAIN[:2])}
    losses["row"] = {1: run(UPSTREAM)}
    assert "holds" not in compared(losses, ["again"])["row"], "nothing to be compared with"
