# SPDX-License-Identifier: Apache-2.0
"""Two runs beside each other: step times and losses, from the files that their ranks wrote."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from turbo_hydra.measure.history import History
from turbo_hydra.measure.rows import FILE, StepRow, read_rows


def rank_rows(run: Path, rank: int = 0) -> list[StepRow]:
    """Rows of one rank of the run whose output folder is `run`.

    Raises
    ------
    OSError
        If the run has no such rank, or was not metered.
    """
    return read_rows(run / "turbo" / "ranks" / str(rank) / FILE)


@dataclass(frozen=True)
class Typical:
    """Medians over the steady steps of one rank, in milliseconds.

    Parameters
    ----------
    wall : float
        By the clock on the wall.
    cpu : float or None
        Of the process's CPU time.
    """

    wall: float
    cpu: float | None


def typical_step(rows: Sequence[StepRow], warmup: int | None = None) -> Typical:
    """Median durations of the steady steps.

    Raises
    ------
    ValueError
        If there is no steady step.
    """
    history = History(warmup)
    history.add(rows)
    summary = history.summary()
    if summary["median_ms"] is None:
        raise ValueError(f"no steady step among {len(rows)}")
    return Typical(summary["median_ms"], summary["cpu_median_ms"])


@dataclass(frozen=True)
class LossDistance:
    """How far the losses of two runs at one seed are apart.

    Parameters
    ----------
    steps : int
        Number of steps that both runs have a loss for, among those looked at.
    largest : float
        Largest difference relative to the first run's loss at that step.
    at : int or None
        The step of it.
    mean : float
        Mean of the relative differences.
    first : int or None
        The first step at which the losses are not bit for bit the same; None if all are.
    """

    steps: int
    largest: float
    at: int | None
    mean: float
    first: int | None


def loss_distance(baseline: Sequence[StepRow], other: Sequence[StepRow], steps: int | None = None) -> LossDistance:
    """Compare losses step by step; of a pair in which one is not finite, the distance is infinite.

    Parameters
    ----------
    baseline, other : sequence of StepRow
        Rows of one rank of each run.
    steps : int, optional
        How many steps from the start are looked at; small differences grow without bound in a long run, so what is
        compared is its beginning.
    """
    theirs = {row.step: row.loss for row in other}
    found: list[tuple[float, int, bool]] = []
    for row in baseline:
        loss = theirs.get(row.step)
        if row.loss is None or loss is None or (steps is not None and row.step >= steps):
            continue
        found.append((_relative(row.loss, loss), row.step, _same(row.loss, loss)))
    if not found:
        return LossDistance(0, 0.0, None, 0.0, None)
    largest, at, _ = max(found)
    first = next((step for _, step, same in found if not same), None)
    return LossDistance(
        len(found), largest, at if largest > 0 else None, math.fsum(item[0] for item in found) / len(found), first
    )


def _same(one: float, other: float) -> bool:
    return one == other or (math.isnan(one) and math.isnan(other))


def _relative(one: float, other: float) -> float:
    if _same(one, other):
        return 0.0
    if not (math.isfinite(one) and math.isfinite(other)):
        return math.inf
    return abs(one - other) / max(abs(one), 1e-12)
