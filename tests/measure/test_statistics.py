# SPDX-License-Identifier: Apache-2.0
"""Order statistics and Student's interval against numpy, scipy and hand computation."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from turbo_hydra.measure.statistics import (
    median,
    quantile,
    ratio_interval,
    student_cdf,
    student_quantile,
    warmup_length,
)

finite = st.floats(-1e6, 1e6)


@given(st.lists(finite, min_size=1, max_size=50), st.floats(0, 1))
def test_quantile_is_numpys(values: list[float], share: float) -> None:
    assert quantile(values, share) == pytest.approx(float(np.quantile(values, share)), abs=1e-6)


def test_median_by_hand() -> None:
    assert median([3.0, 1.0, 2.0]) == 2.0
    assert median([4.0, 1.0, 2.0, 3.0]) == 2.5


@pytest.mark.parametrize("share", [-0.1, 1.1])
def test_quantile_refuses_a_share_outside(share: float) -> None:
    with pytest.raises(ValueError, match="within 0 and 1"):
        quantile([1.0], share)


def test_quantile_of_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one"):
        quantile([], 0.5)


@given(st.floats(-40, 40), st.integers(1, 200))
def test_student_cdf_is_scipys(value: float, freedom: int) -> None:
    # Close to zero scipy itself is off by up to 2e-11 (see the next test).
    assert student_cdf(value, freedom) == pytest.approx(scipy.stats.t.cdf(value, freedom), abs=1e-10)


@given(st.floats(-40, 40))
def test_student_cdf_of_one_degree_of_freedom_is_cauchys(value: float) -> None:
    assert student_cdf(value, 1) == pytest.approx(0.5 + math.atan(value) / math.pi, abs=1e-13)


@given(st.floats(0.001, 0.999), st.integers(1, 200))
def test_student_quantile_is_scipys(probability: float, freedom: int) -> None:
    assert student_quantile(probability, freedom) == pytest.approx(
        scipy.stats.t.ppf(probability, freedom), rel=1e-8, abs=1e-9
    )


def test_student_quantiles_of_the_printed_table() -> None:
    # Two-sided 95 % for 1, 2, 5, 10 and 30 degrees of freedom.
    table = {1: 12.706, 2: 4.303, 5: 2.571, 10: 2.228, 30: 2.042}
    for freedom, value in table.items():
        assert student_quantile(0.975, freedom) == pytest.approx(value, abs=5e-4)


def test_ratio_interval_by_hand() -> None:
    # Logarithms -ln 2 and ln 2 and 0: mean 0, standard deviation ln 2, standard error ln 2 / sqrt 3.
    interval = ratio_interval([0.5, 2.0, 1.0])
    half = 4.302652729911275 * math.log(2) / math.sqrt(3)
    assert interval.value == pytest.approx(1.0)
    assert interval.low == pytest.approx(math.exp(-half))
    assert interval.high == pytest.approx(math.exp(half))
    assert interval.count == 3


@given(st.lists(st.floats(0.1, 10), min_size=2, max_size=12))
def test_ratio_interval_is_scipys(ratios: list[float]) -> None:
    interval = ratio_interval(ratios, 0.9)
    logs = np.log(ratios)
    error = logs.std(ddof=1) / math.sqrt(len(logs))
    if error > 1e-12:
        low, high = scipy.stats.t.interval(0.9, len(logs) - 1, loc=logs.mean(), scale=error)
        assert (interval.low, interval.high) == pytest.approx((math.exp(low), math.exp(high)), rel=1e-7)


def test_the_interval_of_inverse_ratios_is_the_inverse_interval() -> None:
    ratios = [1.1, 1.3, 1.25, 1.2]
    there, back = ratio_interval(ratios), ratio_interval([1 / ratio for ratio in ratios])
    assert (back.low, back.high) == pytest.approx((1 / there.high, 1 / there.low))


def test_one_round_tells_nothing_of_the_spread() -> None:
    interval = ratio_interval([1.3])
    assert interval.value == pytest.approx(1.3)
    assert (interval.low, interval.high) == (0.0, math.inf)


@pytest.mark.parametrize("ratios", [[], [1.0, 0.0], [-1.0]])
def test_ratio_interval_refuses_what_has_no_logarithm(ratios: list[float]) -> None:
    with pytest.raises(ValueError, match="positive"):
        ratio_interval(ratios)


def test_student_interval_covers_what_it_says() -> None:
    generator = np.random.default_rng(0)
    covered = 0
    for _ in range(1000):
        interval = ratio_interval(list(np.exp(generator.normal(0.1, 0.05, size=4))))
        covered += interval.low <= math.exp(0.1) <= interval.high
    # Binomial with p = 0.95: four standard deviations are 0.028.
    assert covered / 1000 == pytest.approx(0.95, abs=0.028)


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ([], 0),
        ([9.0], 1),
        ([100.0, 10, 10, 10, 10, 10, 10, 10], 1),
        ([100.0, 90, 10, 10, 10, 10, 10, 10], 2),
        ([100.0, 10, 90] + [10.0] * 9, 3),
        ([10.0] * 20, 1),
        ([10.0] * 15 + [90.0] + [10.0] * 4, 1),
    ],
    ids=["none", "one", "first", "first two", "second compilation", "flat", "late outlier"],
)
def test_where_the_warm_up_ends(times: list[float], expected: int) -> None:
    assert warmup_length(times) == expected


@given(st.lists(st.floats(0.1, 1e4), min_size=1, max_size=60))
def test_the_warm_up_is_within_the_first_quarter(times: list[float]) -> None:
    assert 1 <= warmup_length(times) <= max(1, len(times) // 4)
