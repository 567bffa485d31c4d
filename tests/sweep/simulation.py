# SPDX-License-Identifier: Apache-2.0
"""Runs on a simulated clock: what shared machines do to step times, with effects that are known."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from turbo_hydra.measure.history import History
from turbo_hydra.measure.rows import StepRow
from turbo_hydra.sweep.judging import judge
from turbo_hydra.sweep.result import Result
from turbo_hydra.sweep.rows import Design, Row
from turbo_hydra.sweep.settings import AblationSettings
from turbo_hydra.sweep.verdicts import Judgement

STEPS = 40
# Of neighbouring steps of one process: the spread, and how much of a deviation is left in the next.
SPREAD, CARRIED = 0.02, 0.8
PROCESS_OFFSET = 0.01
ROUND_DRIFT = 0.02
OUTLIERS = 0.03

Times = Callable[[random.Random], Sequence[float]]


def autocorrelated(draw: random.Random) -> list[float]:
    """Relative step times of one process: AR(1) around an offset of its own, with outliers."""
    offset = draw.gauss(0, PROCESS_OFFSET)
    state, times = draw.gauss(0, SPREAD), []
    for _ in range(STEPS):
        state = CARRIED * state + draw.gauss(0, SPREAD * math.sqrt(1 - CARRIED**2))
        outlier = draw.uniform(1.5, 4.0) if draw.random() < OUTLIERS else 1.0
        times.append(math.exp(offset + state) * outlier)
    return times


@dataclass
class Machine:
    """Runs rows whose groups have planted effects.

    Parameters
    ----------
    effects : mapping of str to float
        Group to its gain: 0.03 makes the row 3 % faster.
    times : callable
        Relative step times of a run without effects.
    together : mapping of (str, str) to float
        Gains of two groups that come only when both are on.
    """

    effects: Mapping[str, float]
    draw: random.Random
    times: Times = autocorrelated
    together: Mapping[tuple[str, str], float] = field(default_factory=dict)
    drift: float = 0.0
    losses: Callable[[Row], list[float | None]] = lambda row: [1.0, 0.9, 0.8]

    def next_round(self) -> None:
        """The machine gets faster or slower as a whole."""
        self.drift += self.draw.gauss(0, ROUND_DRIFT)

    def run(self, row: Row) -> Result:
        """Run a row; the median is taken as the meter takes it."""
        gains = [self.effects[id] for id in row.on]
        gains += [gain for pair, gain in self.together.items() if set(pair) <= set(row.on)]
        base = 100 * math.exp(self.drift) / math.prod(1 + gain for gain in gains)
        history = History()
        history.add([StepRow(step=step, time=0.0, ms=base * time) for step, time in enumerate(self.times(self.draw))])
        history.finish()
        return Result(
            "ok",
            seconds=10.0,
            step_ms=history.summary()["median_ms"],
            losses=self.losses(row),
            hits={id: {"status": "applied", "reasons": [], "calls": 100} for id in row.on},
        )


def sweep(design: Design, machine: Machine, most: int, follow: frozenset[str] = frozenset()) -> tuple[Judgement, int]:
    """Run three rounds, then as many as the table asks for, until it asks for none or for more than `most`.

    Parameters
    ----------
    follow : frozenset of str
        Contrasts whose requests are followed; all if empty.
    """
    results: dict[tuple[str, int], Result] = {}
    done, asked = 0, 3
    while True:
        while done < asked:
            machine.next_round()
            rows = list(design.rows)
            machine.draw.shuffle(rows)
            for row in rows:
                results[row.name, done] = machine.run(row)
            done += 1
        judgement = judge(design, results, AblationSettings(repeats=max(12, done)))
        wishes = [
            verdict.repeats
            for verdict in judgement.verdicts
            if verdict.repeats is not None and (not follow or verdict.contrast.name in follow)
        ]
        wishes = [wish for wish in wishes if done < wish <= most]
        if not wishes:
            return judgement, done
        asked = min(wishes)
