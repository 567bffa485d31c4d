# SPDX-License-Identifier: Apache-2.0
"""What is said of a group, and of a whole sweep."""

from __future__ import annotations

from dataclasses import dataclass

from turbo_hydra.measure.comparing import LossDistance
from turbo_hydra.measure.statistics import Interval
from turbo_hydra.sweep.numerics import Numerics
from turbo_hydra.sweep.rows import Contrast

KEEP, DROP, UNDECIDED, BROKEN = "keep", "drop", "undecided", "broken"
# Of two groups together: what their being together adds to what each gives alone.
TOGETHER, AGAINST, APART = "gains together", "costs together", "adds up"
# Of the baseline run twice.
SAME, DIFFERS = "same", "differs"


@dataclass(frozen=True)
class Verdict:
    """What is said of a contrast.

    Parameters
    ----------
    contrast : Contrast
        What was compared.
    verdict : str
        One of the words above.
    why : str
        In words.
    gain : Interval or None
        Ratio of step times without to with, over all rounds, with its 95 % interval.
    p_value : float or None
        Two-sided, at the last look.
    rounds : int
        Rounds in which all its rows ran.
    look : int or None
        The look at which it was decided, or the last so far.
    repeats : int or None
        Rounds in all that would decide, where it is undecided.
    numerics : Numerics or None
        None of the baseline run twice.
    """

    contrast: Contrast
    verdict: str
    why: str
    gain: Interval | None = None
    p_value: float | None = None
    rounds: int = 0
    look: int | None = None
    repeats: int | None = None
    numerics: Numerics | None = None

    @property
    def decided(self) -> bool:
        """Whether more rounds would change nothing."""
        return self.repeats is None and self.verdict != UNDECIDED


@dataclass(frozen=True)
class Judgement:
    """Verdicts and what holds for all of them.

    Parameters
    ----------
    verdicts : tuple of Verdict
        One for each contrast, in the order of the design.
    metric : str
        The time that was judged.
    level : float
        Two-sided level of one look.
    noise : Verdict
        Of the baseline run twice.
    determinism : LossDistance
        Between runs of the baseline.
    """

    verdicts: tuple[Verdict, ...]
    metric: str
    level: float
    noise: Verdict
    determinism: LossDistance

    @property
    def noisy(self) -> bool:
        """Whether the baseline run twice shows a difference."""
        return self.noise.verdict == DIFFERS
