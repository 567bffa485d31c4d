# SPDX-License-Identifier: Apache-2.0
"""The loop of a sweep: rounds in an order drawn anew, looks, what is still worth running, and the time left."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from turbo_hydra.sweep.judging import judge
from turbo_hydra.sweep.result import Result
from turbo_hydra.sweep.rows import Design, Row
from turbo_hydra.sweep.settings import AblationSettings
from turbo_hydra.sweep.store import Store
from turbo_hydra.sweep.verdicts import Judgement

Run = Callable[[Sequence[tuple[Row, int]]], list[Result]]
Say = Callable[[str], None]


@dataclass
class Ended:
    """How a sweep ended: whether all was run that was asked for, and what a reader must know."""

    judgement: Judgement
    complete: bool
    notes: list[str] = field(default_factory=list)


class Campaign:
    """Runs the rows of a design until what was asked for is decided, done, or out of time.

    Parameters
    ----------
    design, settings : Design, AblationSettings
        What to run and how often.
    store : Store
        Where results are kept; those that are there are not run again.
    run : callable
        Runs some rows at a time and returns their results in order; it puts them into the store.
    say : callable
        Told of each run, in a line.
    after : callable, optional
        Called with what is known after each round.
    clock : callable
        Seconds, for the budget.
    """

    def __init__(
        self,
        design: Design,
        settings: AblationSettings,
        store: Store,
        run: Run,
        say: Say,
        after: Callable[[Judgement], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._design = design
        self._settings = settings
        self._store = store
        self._run = run
        self._say = say
        self._after = after
        self._clock = clock
        self._deadline = None if settings.budget is None else clock() + settings.budget
        self._left_out: set[str] = set()
        self._notes: list[str] = []

    def conduct(self) -> Ended:
        """Run and judge."""
        for number in range(self._settings.repeats):
            judgement = self._judge()
            if number in self._settings.planned and self._all_decided(judgement):
                self._notes.append(f"every group was decided after {number} rounds; the others were not needed")
                break
            if number >= self._settings.planned[0]:
                # In every round: a machine may have become slower since the look.
                if not self._affordable(judgement, number):
                    return Ended(judgement, False, self._notes)
            elif number:
                self._hurry(judgement, number)
            if not self._round(number, judgement):
                return Ended(self._judge(), False, self._notes)
            if self._after is not None:
                self._after(self._judge())
            if self._baseline_failed():
                break
        return Ended(self._judge(), True, self._notes)

    def _judge(self) -> Judgement:
        return judge(self._design, self._store.results, self._settings)

    # What is worth running

    def _round(self, number: int, judgement: Judgement) -> bool:
        """Run what a round lacks; False if the time was up before."""
        missing = [row for row in self._order(number, judgement) if not self._store.has(row, number)]
        total = len(missing)
        at_once = self._settings.parallel_jobs
        for start in range(0, total, at_once):
            batch = missing[start : start + at_once]
            if not self._time_for(batch):
                self._notes.append(
                    f"the budget of {spoken(self._settings.budget or 0)} was spent in round {number + 1} "
                    f"of {self._settings.repeats}"
                )
                return False
            results = self._run([(row, number) for row in batch])
            for place, (row, result) in enumerate(zip(batch, results, strict=True), start=start + 1):
                self._say(self._line(number, place, total, row, result))
        return True

    def _order(self, number: int, judgement: Judgement) -> list[Row]:
        """The rows of a round, in an order that only the seed and the round decide."""
        rows = list(self._design.rows)
        random.Random(f"{self._settings.seed}/{number}").shuffle(rows)
        wanted = self._wanted(judgement)
        return [row for row in rows if row.name in wanted and not self._failed(row)]

    def _wanted(self, judgement: Judgement) -> set[str]:
        if not self._store.results:
            return {row.name for row in self._design.rows}
        wanted = {self._design.baseline}
        judged: set[str] = set()
        for verdict in judgement.verdicts:
            rows = set(verdict.contrast.weights)
            judged |= rows
            # A fault settles a group at once; what speed settles is settled at a look.
            open_ = not verdict.decided and verdict.contrast.name not in self._left_out
            wanted |= rows if open_ or verdict.contrast.kind == "again" else set()
        # Rows that nothing is judged by (all groups off, where each is left out) are shown, while there is time.
        return wanted | {row.name for row in self._design.rows if row.name not in judged | self._left_out}

    def _failed(self, row: Row) -> bool:
        return any(name == row.name and not result.ok for (name, _), result in self._store.results.items())

    def _baseline_failed(self) -> bool:
        failed = self._failed(self._design.row(self._design.baseline))
        if failed:
            self._notes.append("the baseline failed, so nothing can be compared with it")
        return failed

    def _all_decided(self, judgement: Judgement) -> bool:
        return all(verdict.decided for verdict in judgement.verdicts if verdict.contrast.kind != "again")

    # Time

    def seconds(self, row: Row) -> float:
        """How long a run of the row takes, as far as one can know."""
        own = [result.seconds for (name, _), result in self._store.results.items() if name == row.name]
        every = own or [result.seconds for result in self._store.results.values()]
        return fmean(every) if every else 0.0

    def _time_for(self, rows: Sequence[Row]) -> bool:
        if self._deadline is None:
            return True
        return self._clock() + max(self.seconds(row) for row in rows) <= self._deadline

    def _affordable(self, judgement: Judgement, number: int) -> bool:
        """Leave out what the budget cannot decide, the farthest from a decision first; False if nothing is left."""
        if self._deadline is None:
            return True
        following = next((look for look in self._settings.planned if look > number), self._settings.repeats)
        rounds = min(following, self._settings.repeats) - number
        open_ = [
            verdict
            for verdict in judgement.verdicts
            if verdict.contrast.kind != "again" and not verdict.decided and verdict.contrast.name not in self._left_out
        ]
        open_.sort(key=lambda verdict: verdict.repeats or float("inf"), reverse=True)
        waiting = [*self._extra(judgement), *(verdict.contrast.name for verdict in open_)]
        while waiting:
            if self._clock() + self._cost(judgement, rounds) <= self._deadline:
                return True
            self._left_out.add(waiting.pop(0))
            if len(waiting) == 0:
                self._notes.append(
                    f"the budget of {spoken(self._settings.budget or 0)} does not reach the look at {following} rounds"
                )
                return False
        return True

    def _hurry(self, judgement: Judgement, number: int) -> None:
        """Leave out rows that nothing is judged by where the next look would not be reached with them."""
        following = next((look for look in self._settings.planned if look > number), self._settings.repeats)
        if self._deadline is not None and self._clock() + self._cost(judgement, following - number) > self._deadline:
            self._left_out |= set(self._extra(judgement))

    def _extra(self, judgement: Judgement) -> list[str]:
        judged = {name for verdict in judgement.verdicts for name in verdict.contrast.weights}
        return [row.name for row in self._design.rows if row.name not in judged]

    def _cost(self, judgement: Judgement, rounds: int) -> float:
        """Seconds that so many rounds of what is still wanted take."""
        wanted = self._wanted(judgement)
        rows = [row for row in self._design.rows if row.name in wanted and not self._failed(row)]
        return rounds * sum(self.seconds(row) for row in rows) / self._settings.parallel_jobs

    def _line(self, number: int, place: int, total: int, row: Row, result: Result) -> str:
        said = f"round {number + 1}/{self._settings.repeats}  run {place}/{total}  {row.name}"
        said += f"  {result.step_ms:.1f} ms a step" if result.ok and result.step_ms else f"  FAILED: {result.reason}"
        return f"{said}  ({spoken(result.seconds)}; {self._left(number, total - place)} left)"

    def _left(self, number: int, in_round: int) -> str:
        wanted = self._wanted(self._judge())
        rows = [row for row in self._design.rows if row.name in wanted and not self._failed(row)]
        each = fmean(self.seconds(row) for row in rows) if rows else 0.0
        rounds = self._settings.repeats - number - 1
        left = (in_round + rounds * len(rows)) * each / self._settings.parallel_jobs
        if self._deadline is not None:
            left = min(left, max(0.0, self._deadline - self._clock()))
        return f"at most {spoken(left)}" if left else "nothing"


def spoken(seconds: float) -> str:
    """Seconds, minutes or hours, as one says them."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
