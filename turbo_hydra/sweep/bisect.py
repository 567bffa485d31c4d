# SPDX-License-Identifier: Apache-2.0
"""Which group makes the losses diverge: found by halving the groups, one run a step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from turbo_hydra.measure.comparing import LossDistance
from turbo_hydra.sweep import numerics
from turbo_hydra.sweep.result import Result
from turbo_hydra.sweep.rows import AGAIN, Design, Row, Toggle

RunOne = Callable[[Row], Result]


@dataclass
class Found:
    """The outcome.

    Parameters
    ----------
    rows : list of Row
        Those that ran, in order.
    culprit : str or None
        The group from which on the losses diverge.
    notes : list of str
        What was found, in sentences.
    """

    rows: list[Row] = field(default_factory=list)
    culprit: str | None = None
    notes: list[str] = field(default_factory=list)

    def design(self, toggles: Sequence[Toggle]) -> Design:
        """The rows as a design without comparisons."""
        return Design("bisect", tuple(toggles), tuple(self.rows), (), "none")


def bisect(toggles: Sequence[Toggle], run: RunOne, close: float) -> Found:
    """Find the first group, in the order given, with which the losses leave those of the baseline.

    Groups that declare to change the training are left off: with them losses differ by intention.

    Parameters
    ----------
    toggles : sequence of Toggle
        Each after those that it depends on.
    run : callable
        Runs a row.
    close : float
        Largest relative distance of losses that is no divergence.
    """
    return _Bisection(toggles, run, close).find()


class _Bisection:
    def __init__(self, toggles: Sequence[Toggle], run: RunOne, close: float) -> None:
        self._run = run
        self._close = close
        self._found = Found()
        self._results: dict[tuple[str, ...], Result] = {}
        changing = {toggle.id for toggle in toggles if toggle.numerics == "changes training"}
        # What needs one of them is not applied without it.
        self._groups = [item.id for item in toggles if item.id not in changing and not changing & set(item.depends_on)]
        self._needs = {toggle.id: toggle.depends_on for toggle in toggles}
        left = [toggle.id for toggle in toggles if toggle.id not in self._groups]
        if left:
            self._found.notes.append(f"left off, since they change the training by intention: {', '.join(left)}")

    def find(self) -> Found:
        baseline = self._row((), "none")
        if not baseline.ok:
            self._say(f"the run with all groups off failed: {baseline.reason}")
            return self._found
        again = Row(f"none ({AGAIN})", (), again=True, note="the baseline once more")
        self._found.rows.append(again)
        noise = numerics.determinism([baseline, self._run(again)])
        allowed = max(self._close, numerics.SCATTER * noise.largest)
        if noise.first is not None:
            self._say(f"the baseline is not deterministic: its losses differ by {noise.largest:.1e} from run to run")

        def diverges(on: Sequence[str], name: str) -> bool:
            result = self._row(tuple(on), name)
            # A run that fails where the baseline does not has left it in the plainest way.
            return not result.ok or numerics.losses(baseline, result).largest > allowed

        groups = self._groups
        if not diverges(groups, "all"):
            largest = self._distance(groups).largest
            self._say(f"with all groups the losses differ by {largest:.1e}, within the {allowed:.0e} that is allowed")
            return self._found
        good, bad = 0, len(groups)
        while bad - good > 1:
            middle = (good + bad) // 2
            if diverges(groups[:middle], f"the first {middle}"):
                bad = middle
            else:
                good = middle
        culprit = self._found.culprit = groups[bad - 1]
        self._say(
            f"the losses diverge with {culprit}: {self._said(groups[:bad])}; {self._said(groups[:good])} before it"
        )
        alone = [*(id for id in groups if id in self._needs[culprit]), culprit]
        if diverges(alone, f"only {culprit}"):
            self._say(f"{culprit} does it alone: {self._said(alone)}")
        else:
            self._say(f"{culprit} alone does not diverge: it does so together with a group before it")
        rest = [id for id in groups if id != culprit and culprit not in self._needs[id]]
        if diverges(rest, f"without {culprit}"):
            self._say(
                f"without {culprit} the losses still diverge ({self._said(rest)}): there is another such group after it"
            )
        return self._found

    def _row(self, on: tuple[str, ...], name: str) -> Result:
        if on not in self._results:
            row = Row(name, on)
            self._found.rows.append(row)
            self._results[on] = self._run(row)
        return self._results[on]

    def _distance(self, on: Sequence[str]) -> LossDistance:
        return numerics.losses(self._results[()], self._results[tuple(on)])

    def _said(self, on: Sequence[str]) -> str:
        result = self._results[tuple(on)]
        if not result.ok:
            return f"the run failed ({result.reason})"
        distance = self._distance(on)
        where = f" at step {distance.at}" if distance.at is not None else ""
        return f"a distance of {distance.largest:.1e}{where}"

    def _say(self, sentence: str) -> None:
        self._found.notes.append(sentence)
