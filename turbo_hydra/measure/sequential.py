# SPDX-License-Identifier: Apache-2.0
"""Looking at a growing sample several times, at several hypotheses, with one error rate for all of it."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from statistics import NormalDist

_NORMAL = NormalDist()
_GRID = 120


@functools.lru_cache(maxsize=64)
def pocock_level(looks: tuple[int, ...], error: float = 0.05) -> float:
    """The level of each of several planned looks, such that all together err with probability `error`.

    Pocock's bounds: the same level at every look. The sums at the looks are those of a random walk; its probability of
    leaving the strip is integrated look by look (Armitage, McPherson and Rowe 1969).

    Parameters
    ----------
    looks : tuple of int
        Sample sizes, growing.
    error : float
        Two-sided, over all looks.

    Returns
    -------
    float
        Two-sided level of one look; `error` itself where there is one look.

    Raises
    ------
    ValueError
        If the sizes do not grow, or the error is not strictly between 0 and 1.
    """
    if not looks or looks[0] < 1 or any(later <= sooner for sooner, later in itertools.pairwise(looks)):
        raise ValueError(f"the looks must be growing sample sizes, found {list(looks)}")
    if not 0 < error < 1:
        raise ValueError(f"an error rate must be strictly between 0 and 1, found {error}")
    if len(looks) == 1:
        return error
    low, high = _NORMAL.inv_cdf(1 - error / 2), _NORMAL.inv_cdf(1 - error / 2 / len(looks))
    while high - low > 1e-6:
        bound = (low + high) / 2
        if 1 - _stays_within(bound, looks) > error:
            low = bound
        else:
            high = bound
    return 2 * (1 - _NORMAL.cdf(high))


def _stays_within(bound: float, looks: Sequence[int]) -> float:
    """Probability that a standardised random walk is within the bound at every look."""
    points = _points(bound * math.sqrt(looks[0]))
    scale = math.sqrt(looks[0])
    density = [math.exp(-0.5 * (point / scale) ** 2) / scale for point in points]
    for sooner, later in itertools.pairwise(looks):
        weights = [weight * value for weight, value in zip(_weights(points), density, strict=True)]
        targets = _points(bound * math.sqrt(later))
        spread = math.sqrt(later - sooner)
        factor = -0.5 / (later - sooner)
        norm = 1 / (spread * math.sqrt(2 * math.pi))
        density = [
            norm
            * sum(
                weight * math.exp(factor * (target - point) ** 2) for weight, point in zip(weights, points, strict=True)
            )
            for target in targets
        ]
        points = targets
    total = sum(weight * value for weight, value in zip(_weights(points), density, strict=True))
    return total / math.sqrt(2 * math.pi)


def _points(half: float) -> list[float]:
    return [half * (2 * index / _GRID - 1) for index in range(_GRID + 1)]


def _weights(points: Sequence[float]) -> list[float]:
    """Simpson's, for equally spaced points."""
    width = points[1] - points[0]
    inner = [4.0 if index % 2 else 2.0 for index in range(1, len(points) - 1)]
    return [width / 3 * weight for weight in (1.0, *inner, 1.0)]


def holm(p_values: Mapping[str, float], level: float) -> set[str]:
    """Names whose hypothesis is rejected while the chance of any wrong rejection stays within `level`.

    Holm's step-down procedure: the smallest p-value is held to the level divided by the number of hypotheses, the next
    to the level divided by one less, until one fails.
    """
    rejected: set[str] = set()
    ordered = sorted(p_values.items(), key=lambda item: item[1])
    for place, (name, p_value) in enumerate(ordered):
        if p_value > level / (len(ordered) - place):
            break
        rejected.add(name)
    return rejected
