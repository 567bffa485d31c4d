# SPDX-License-Identifier: Apache-2.0
"""Statistics of step times: order statistics, where the warm-up ends, and intervals for ratios of runs.

Written against the standard library: the launcher needs these numbers on machines that have neither numpy nor scipy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

# A step of the warm-up takes this many times the steady median or more: a compilation, an allocation, a cold cache.
# Less is within what a shared machine does to any step.
SLOW = 1.5


def quantile(values: Sequence[float], share: float) -> float:
    """Linear interpolation between order statistics, as numpy's default.

    Raises
    ------
    ValueError
        If there are no values or `share` is outside 0 to 1.
    """
    if not values:
        raise ValueError("a quantile needs at least one value")
    if not 0 <= share <= 1:
        raise ValueError(f"a quantile's share must be within 0 and 1, found {share}")
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def median(values: Sequence[float]) -> float:
    """The middle value."""
    return quantile(values, 0.5)


def warmup_length(times: Sequence[float]) -> int:
    """How many leading steps are warm-up.

    The first step always is. Beyond it, the warm-up ends after the last step in the first quarter of the run that took
    `SLOW` times the median of the rest; isolated slow steps later (an evaluation, a checkpoint) stay in, where a median
    bears them.

    Parameters
    ----------
    times : sequence of float
        Duration of each step in order, in any unit.
    """
    if not times:
        return 0
    search = max(1, len(times) // 4)
    steady = median(times[search:] or times)
    return 1 + max((index for index in range(search) if times[index] >= SLOW * steady), default=0)


@dataclass(frozen=True)
class Interval:
    """An estimate with a confidence interval."""

    value: float
    low: float
    high: float
    count: int


def ratio_interval(ratios: Sequence[float], level: float = 0.95) -> Interval:
    """Geometric mean of the rounds' ratios with Student's interval on their logarithms.

    The unit is the round (one run of each side, next to each other in time): steps within a run are not independent.

    Parameters
    ----------
    ratios : sequence of float
        One ratio a round, all positive.
    level : float
        Coverage asked for.

    Returns
    -------
    Interval
        With one round the interval is from 0 to infinity: nothing is known of the spread.

    Raises
    ------
    ValueError
        If there are no ratios or one is not positive.
    """
    if not ratios or min(ratios) <= 0:
        raise ValueError(f"an interval needs positive ratios, found {list(ratios)}")
    logs = [math.log(ratio) for ratio in ratios]
    count = len(logs)
    mean = math.fsum(logs) / count
    if count == 1:
        return Interval(math.exp(mean), 0.0, math.inf, 1)
    variance = math.fsum((value - mean) ** 2 for value in logs) / (count - 1)
    half = student_quantile(0.5 + level / 2, count - 1) * math.sqrt(variance / count)
    return Interval(math.exp(mean), math.exp(mean - half), math.exp(mean + half), count)


def student_cdf(value: float, freedom: float) -> float:
    """Probability that Student's t with `freedom` degrees of freedom is at most `value`."""
    square = value * value
    # Of the two equal forms, the one whose argument is not close to 1: it has lost no digits.
    if square < freedom:
        half = 0.5 * _incomplete_beta(square / (freedom + square), 0.5, freedom / 2)
    else:
        half = 0.5 - 0.5 * _incomplete_beta(freedom / (freedom + square), freedom / 2, 0.5)
    return 0.5 + math.copysign(half, value)


def student_quantile(probability: float, freedom: float) -> float:
    """The value that Student's t with `freedom` degrees of freedom stays under with the given probability.

    Raises
    ------
    ValueError
        If the probability is not strictly between 0 and 1.
    """
    if not 0 < probability < 1:
        raise ValueError(f"a probability must be strictly between 0 and 1, found {probability}")
    if probability < 0.5:
        return -student_quantile(1 - probability, freedom)
    high = 1.0
    while student_cdf(high, freedom) < probability:
        high *= 2
    low = 0.0
    while high - low > 1e-12 * max(1.0, high):
        middle = (low + high) / 2
        if student_cdf(middle, freedom) < probability:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _incomplete_beta(x: float, a: float, b: float) -> float:
    """Regularised incomplete beta function I_x(a, b)."""
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    # The continued fraction converges fast only on this side of the mean; the symmetry gives the other.
    if x < (a + 1) / (a + b + 2):
        return front * _beta_fraction(x, a, b) / a
    return 1 - front * _beta_fraction(1 - x, b, a) / b


def _beta_fraction(x: float, a: float, b: float) -> float:
    """Continued fraction of the incomplete beta function, by Lentz's method (Numerical Recipes 6.4)."""
    tiny = 1e-300
    c = 1.0
    d = 1.0 / _away_from_zero(1 - (a + b) * x / (a + 1), tiny)
    result = d
    for m in range(1, 500):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1.0 / _away_from_zero(1 + term * d, tiny)
            c = _away_from_zero(1 + term / c, tiny)
            result *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return result


def _away_from_zero(value: float, tiny: float) -> float:
    return value if abs(value) > tiny else tiny
