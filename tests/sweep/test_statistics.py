# SPDX-License-Identifier: Apache-2.0
"""Looks and families of hypotheses, against published tables, scipy, and simulation."""

from __future__ import annotations

import math
import random
from statistics import NormalDist

import pytest
from scipy import stats

from turbo_hydra.measure.sequential import holm, pocock_level

# Jennison and Turnbull (2000), table 2.1: Pocock's constants for equally spaced looks, two-sided error 0.05.
POCOCK = {1: 1.960, 2: 2.178, 3: 2.289, 4: 2.361, 5: 2.413, 6: 2.453, 8: 2.512}


@pytest.mark.parametrize(("looks", "constant"), POCOCK.items())
def test_pocock_of_equally_spaced_looks_is_the_published_constant(looks: int, constant: float) -> None:
    level = pocock_level(tuple(range(1, looks + 1)))
    assert NormalDist().inv_cdf(1 - level / 2) == pytest.approx(constant, abs=6e-4)


@pytest.mark.parametrize("looks", [(3, 6, 12), (4, 8), (3, 6, 12, 24)])
def test_the_chance_to_leave_the_strip_is_the_error_asked_for(looks: tuple[int, ...]) -> None:
    bound = NormalDist().inv_cdf(1 - pocock_level(looks) / 2)
    covariance = [[math.sqrt(min(a, b) / max(a, b)) for b in looks] for a in looks]
    walk = stats.multivariate_normal(mean=[0.0] * len(looks), cov=covariance)
    inside = walk.cdf([bound] * len(looks), lower_limit=[-bound] * len(looks))
    assert 1 - inside == pytest.approx(0.05, abs=1e-3)


@pytest.mark.parametrize("looks", [(), (0, 3), (3, 3), (6, 3)])
def test_looks_that_do_not_grow_are_refused(looks: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="growing"):
        pocock_level(looks)


def test_looking_three_times_at_students_interval_errs_as_rarely_as_asked() -> None:
    draw = random.Random(1)
    looks, runs, wrong = (3, 6, 12), 4000, 0
    level = pocock_level(looks)
    critical = {look: float(stats.t.ppf(1 - level / 2, look - 1)) for look in looks}
    for _ in range(runs):
        sample = [draw.gauss(0, 1) for _ in range(looks[-1])]
        for look in looks:
            part = sample[:look]
            mean = sum(part) / look
            error = math.sqrt(sum((value - mean) ** 2 for value in part) / (look - 1) / look)
            if abs(mean) > critical[look] * error:
                wrong += 1
                break
    # The constants are those of the normal; with Student's at these sizes the error stays within a standard error.
    assert wrong / runs < 0.05 + 3 * math.sqrt(0.05 * 0.95 / runs) + 0.005


def test_holm_by_hand() -> None:
    # Held to 0.05/4, 0.05/3, 0.05/2, 0.05: the third fails, so the fourth is not even asked.
    assert holm({"a": 0.010, "b": 0.030, "c": 0.016, "d": 0.035}, 0.05) == {"a", "c"}
    assert holm({"a": 0.020}, 0.05) == {"a"}
    assert holm({}, 0.05) == set()


def test_holm_against_adjusted_values() -> None:
    draw = random.Random(3)
    for _ in range(50):
        values = {str(name): draw.random() ** 3 for name in range(draw.randrange(1, 9))}
        ordered = sorted(values.values())
        adjusted, highest = {}, 0.0
        for place, value in enumerate(ordered):
            highest = max(highest, min(1.0, (len(ordered) - place) * value))
            adjusted[value] = highest
        expected = {name for name, value in values.items() if adjusted[value] <= 0.05}
        assert holm(values, 0.05) == expected
