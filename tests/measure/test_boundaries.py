# SPDX-License-Identifier: Apache-2.0
"""Which updates end a step, as sequences of events."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbo_hydra.measure.boundaries import StepBoundaries


def steps(events: str, every: int = 1) -> int:
    """Count steps; B is a backward, a and b are optimizers, S is the return of GradScaler.step."""
    boundaries = StepBoundaries(every)
    count = 0
    for event in events:
        if event == "B":
            boundaries.backward()
        elif event == "S":
            count += boundaries.scaler()
        else:
            count += boundaries.optimizer(ord(event))
    return count


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ("BaBaBa", 3),
        ("BBBaBBBa", 2),
        ("BabBab", 2),
        ("BaBbBaBb", 4),
        ("BabcdBabcd", 2),
        ("BaSBaS", 2),
        ("BSBaSBS", 3),
        ("BaSbSBSSBaSbS", 3),
        ("aaa", 3),
        ("ababab", 3),
        ("", 0),
        ("BBB", 0),
        ("S", 0),
    ],
    ids=[
        "plain",
        "accumulation",
        "two optimizers after one backward",
        "a backward for each of two optimizers",
        "an optimizer for each parameter",
        "scaler",
        "scaler that skips twice",
        "scaler and two optimizers, both skipped once",
        "no backward",
        "no backward, two optimizers",
        "nothing",
        "no update",
        "scaler without backward",
    ],
)
def test_steps_of_known_loops(events: str, expected: int) -> None:
    assert steps(events) == expected


def test_step_every_groups_updates() -> None:
    assert steps("BaBaBaBaBa", every=2) == 2


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 5)), max_size=20))
def test_one_step_for_each_group_of_backwards_and_updates(shape: list[tuple[int, int]]) -> None:
    events = "".join("B" * backwards + "abcde"[:optimizers] for backwards, optimizers in shape)
    assert steps(events) == len(shape)
