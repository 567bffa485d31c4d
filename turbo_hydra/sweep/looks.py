# SPDX-License-Identifier: Apache-2.0
"""The statistics of a sweep: what the planned looks at its rounds decide, and how many rounds would decide the rest."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from statistics import fmean, stdev

from turbo_hydra.measure.sequential import holm, pocock_level
from turbo_hydra.measure.statistics import student_cdf, student_quantile
from turbo_hydra.sweep.rows import Contrast
from turbo_hydra.sweep.settings import AblationSettings

# What projections are asked for: an effect as large as the estimate is found with this probability, 0.9.
_POWER_Z = 1.2815515655446004
# Beyond this many rounds the answer is that this machine does not tell.
MOST_REPEATS = 200


class Looks:
    """What is decided at each planned look that the rounds reach, as if it had been decided then.

    Parameters
    ----------
    contrasts : sequence of Contrast
        All of the design's.
    logs : mapping
        For each contrast's name the log of its gain in each round.
    settings : AblationSettings
        Looks, error rate and the smallest gain that counts.
    settled : collection of str
        Names of contrasts that are judged by something else than times.

    Attributes
    ----------
    level : float
        Two-sided level of one look.
    found : dict
        Names of contrasts that differ from nothing, and the look that showed it.
    without_gain : dict
        Names of contrasts of which a look excluded the smallest gain that counts.
    """

    def __init__(
        self,
        contrasts: Sequence[Contrast],
        logs: Mapping[str, Sequence[float]],
        settings: AblationSettings,
        settled: Collection[str],
    ) -> None:
        self._contrasts = contrasts
        self._logs = logs
        self._settled = settled
        self._planned = settings.planned
        self._smallest = math.log1p(settings.smallest)
        self.level = pocock_level(settings.planned, settings.error)
        self.found: dict[str, int] = {}
        self.without_gain: dict[str, int] = {}
        for look in settings.planned:
            self._look(look)

    def _look(self, look: int) -> None:
        families: dict[str, dict[str, float]] = {"group": {}, "interaction": {}}
        groups = sum(contrast.kind == "group" for contrast in self._contrasts)
        for contrast in self._contrasts:
            name, logs = contrast.name, self._logs[contrast.name][:look]
            decided = name in self.found or name in self.without_gain or name in self._settled
            if decided or len(logs) < look:
                continue
            if contrast.kind == "again":
                # Held to what the first of the groups is held to, whatever becomes of the others: it is no discovery
                # that is looked for here, and a false alarm takes every verdict away.
                if p_value(logs) <= self.level / max(1, groups):
                    self.found[name] = look
                continue
            families[contrast.kind][name] = p_value(logs)
        for family in families.values():
            for name in holm(family, self.level):
                self.found[name] = look
            for name in family:
                if name not in self.found and self._excludes_gains(self._logs[name][:look]):
                    self.without_gain[name] = look

    def _excludes_gains(self, logs: Sequence[float]) -> bool:
        half = student_quantile(1 - self.level / 2, len(logs) - 1) * _error(logs)
        return fmean(logs) + half < self._smallest

    def repeats_needed(self, contrast: Contrast) -> int | None:
        """The first look, planned or a doubling beyond, at which a gain like the estimate would probably be decided.

        Where that is beyond reach, a gain that is larger by a standard error counts: the estimate may be that much off.
        None where that is beyond `MOST_REPEATS` rounds too.
        """
        logs = self._logs[contrast.name]
        mean = fmean(logs)
        return self._look_for(contrast, abs(mean), logs) or self._look_for(contrast, mean + _error(logs), logs)

    def _look_for(self, contrast: Contrast, gain: float, logs: Sequence[float]) -> int | None:
        mean, spread = fmean(logs), stdev(logs)
        # How many hypotheses share the level with this one.
        shared = sum(
            other.kind == contrast.kind and other.name not in self._settled and other.name not in self.found
            for other in self._contrasts
        )
        for look in self._later(len(logs)):
            error = spread / math.sqrt(look)
            shown = student_quantile(1 - self.level / 2 / max(1, shared), look - 1) + _POWER_Z
            excluded = student_quantile(1 - self.level / 2, look - 1) + _POWER_Z
            if gain >= shown * error or mean + excluded * error < self._smallest:
                return look
        return None

    def _later(self, rounds: int) -> Iterable[int]:
        yield from (look for look in self._planned if look > rounds)
        look = self._planned[-1]
        while (look := 2 * look) <= MOST_REPEATS:
            if look > rounds:
                yield look


def p_value(logs: Sequence[float]) -> float:
    """Two-sided, of Student's test that the mean of at least two numbers is zero."""
    error = _error(logs)
    if error == 0:
        return 0.0 if fmean(logs) else 1.0
    return 2 * student_cdf(-abs(fmean(logs)) / error, len(logs) - 1)


def _error(logs: Sequence[float]) -> float:
    return stdev(logs) / math.sqrt(len(logs))
