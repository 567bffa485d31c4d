# SPDX-License-Identifier: Apache-2.0
"""Whether a group trains the same model: losses at equal seeds, held to the class that the group declares."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from turbo_hydra.measure.comparing import LossDistance, loss_distance
from turbo_hydra.measure.rows import StepRow
from turbo_hydra.sweep.result import Result

CLASSES = ("bitwise", "close", "changes training")
# Two runs of one configuration on a machine that does not repeat itself scatter; a third pair may be this much farther
# apart than the farthest seen.
SCATTER = 3.0
NONE = LossDistance(0, 0.0, None, 0.0, None)


@dataclass(frozen=True)
class Numerics:
    """What the losses say of a group.

    Parameters
    ----------
    declared : str
        The weakest class of the groups that are compared.
    distance : LossDistance
        The largest found in any round.
    holds : bool or None
        Whether the class holds; None where no loss was seen.
    why : str
        In words, where it does not.
    """

    declared: str
    distance: LossDistance
    holds: bool | None
    why: str = ""


def losses(one: Result, other: Result) -> LossDistance:
    """How far apart the losses of two runs are."""
    return loss_distance(_rows(one.losses), _rows(other.losses))


def farthest(distances: Iterable[LossDistance]) -> LossDistance:
    """The largest of several distances; of equal ones that with an earlier difference."""
    known = [distance for distance in distances if distance.steps]
    return max(known, key=lambda distance: (distance.largest, distance.first is not None), default=NONE)


def determinism(runs: Sequence[Result]) -> LossDistance:
    """The largest distance between runs of one configuration."""
    with_losses = [run for run in runs if run.losses]
    return farthest(losses(with_losses[0], other) for other in with_losses[1:]) if with_losses else NONE


def judge(
    declared: Iterable[str], pairs: Sequence[tuple[Result, Result]], noise: LossDistance, close: float
) -> Numerics:
    """Hold the losses of runs with and without some groups to the class that these declare.

    Parameters
    ----------
    declared : iterable of str
        Their classes; the weakest holds for all together.
    pairs : sequence of (Result, Result)
        Runs with and without.
    noise : LossDistance
        Between runs of the baseline.
    close : float
        What `close` allows.
    """
    weakest = max(declared, key=CLASSES.index, default="bitwise")
    distance = farthest(losses(without, with_) for with_, without in pairs)
    if not distance.steps:
        return Numerics(weakest, distance, None, "no losses were seen")
    if any(_breaks_down(with_, without) for with_, without in pairs):
        return Numerics(weakest, distance, False, f"the losses are no numbers from step {_where(distance)} on")
    if weakest == "changes training":
        return Numerics(weakest, distance, True)
    scatter = SCATTER * noise.largest
    if weakest == "bitwise":
        if distance.first is None or (noise.first is not None and distance.largest <= scatter):
            return Numerics(weakest, distance, True)
        what = (
            f"declared bitwise, and the losses differ from step {distance.first} on, by {distance.largest:.1e} at most"
        )
        return Numerics(weakest, distance, False, what)
    allowed = max(close, scatter)
    if distance.largest <= allowed:
        return Numerics(weakest, distance, True)
    what = f"declared close, and the losses differ by {distance.largest:.1e} at step {_where(distance)}"
    return Numerics(weakest, distance, False, f"{what} ({allowed:.0e} is allowed)")


def _where(distance: LossDistance) -> int | None:
    return distance.at if distance.at is not None else distance.first


def _breaks_down(with_: Result, without: Result) -> bool:
    """Whether a loss stops being a number only where the groups are on."""
    return any(
        one is not None and other is not None and math.isfinite(one) and not math.isfinite(other)
        for one, other in zip(without.losses, with_.losses, strict=False)
    )


def _rows(values: Sequence[float | None]) -> list[StepRow]:
    return [StepRow(step=step, time=0.0, loss=loss) for step, loss in enumerate(values)]
