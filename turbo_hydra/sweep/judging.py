# SPDX-License-Identifier: Apache-2.0
"""From the results of all rounds to a verdict for each group. Pure: the same results give the same verdicts."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from statistics import fmean, stdev

from turbo_hydra.measure.statistics import ratio_interval
from turbo_hydra.sweep import numerics
from turbo_hydra.sweep.faults import fault
from turbo_hydra.sweep.looks import MOST_REPEATS, Looks, p_value
from turbo_hydra.sweep.numerics import Numerics
from turbo_hydra.sweep.result import Result
from turbo_hydra.sweep.rows import Contrast, Design
from turbo_hydra.sweep.settings import AblationSettings
from turbo_hydra.sweep.verdicts import (
    AGAINST,
    APART,
    DIFFERS,
    DROP,
    KEEP,
    SAME,
    TOGETHER,
    UNDECIDED,
    Judgement,
    Verdict,
)

Results = Mapping[tuple[str, int], Result]


def value(result: Result, metric: str) -> float | None:
    """The time of a step by a metric."""
    if not result.ok:
        return None
    return {"step": result.step_ms, "cpu": result.cpu_ms, "device": result.device_ms}[metric]


def judge(design: Design, results: Results, settings: AblationSettings) -> Judgement:
    """Judge what there is so far; at every planned look that the results reach, as if it had been judged then."""
    return _Judge(design, results, settings).judge()


class _Judge:
    def __init__(self, design: Design, results: Results, settings: AblationSettings) -> None:
        self._design = design
        self._results = results
        self._settings = settings
        self._numbers = sorted({number for _, number in results})
        self._logs = {contrast.name: self._rounds(contrast) for contrast in design.contrasts}

    def judge(self) -> Judgement:
        """Judge every contrast."""
        contrasts = self._design.contrasts
        rows: dict[str, list[Result]] = {}
        for (name, _), result in self._results.items():
            rows.setdefault(name, []).append(result)
        classes = {toggle.id: toggle.numerics for toggle in self._design.toggles}
        noise = numerics.determinism(
            [
                result
                for (name, _), result in sorted(self._results.items(), key=lambda item: item[0][1])
                if name == self._design.baseline or self._design.row(name).again
            ]
        )
        self._numerics = {
            contrast.name: numerics.judge(
                (classes.get(id, "close") for id in contrast.groups),
                self._pairs(contrast),
                noise,
                self._settings.close,
            )
            for contrast in contrasts
        }
        self._faults = {
            contrast.name: found
            for contrast in contrasts
            if contrast.kind != "again"
            and (found := fault(contrast, self._design, rows, self._numerics[contrast.name])) is not None
        }
        self._looks = Looks(contrasts, self._logs, self._settings, self._faults)
        again = next(contrast for contrast in contrasts if contrast.kind == "again")
        aa = self._verdict(again, None, noisy=False)
        verdicts = tuple(
            aa if contrast is again else self._verdict(contrast, self._numerics[contrast.name], aa.verdict == DIFFERS)
            for contrast in contrasts
        )
        return Judgement(verdicts, self._settings.metric, self._looks.level, aa, noise)

    # What the rounds gave

    def _rounds(self, contrast: Contrast) -> list[float]:
        """The log of the gain in each round in which all the contrast's rows have a time."""
        found = []
        for number in self._numbers:
            total = 0.0
            for name, weight in contrast.weights.items():
                result = self._results.get((name, number))
                time = None if result is None else value(result, self._settings.metric)
                if time is None or time <= 0:
                    break
                total += weight * math.log(time)
            else:
                found.append(total)
        return found

    def _pairs(self, contrast: Contrast) -> list[tuple[Result, Result]]:
        found = []
        for with_, without in contrast.pairs:
            for number in self._numbers:
                pair = self._results.get((with_, number)), self._results.get((without, number))
                if pair[0] is not None and pair[1] is not None and pair[0].ok and pair[1].ok:
                    found.append((pair[0], pair[1]))
        return found

    # What is said

    def _verdict(self, contrast: Contrast, found: Numerics | None, noisy: bool) -> Verdict:
        logs = self._logs[contrast.name]
        reached = [look for look in self._settings.planned if look <= len(logs)]
        base = Verdict(
            contrast,
            UNDECIDED,
            "",
            gain=ratio_interval([math.exp(log) for log in logs]) if logs else None,
            rounds=len(logs),
            look=reached[-1] if reached else None,
            numerics=found,
        )
        if contrast.name in self._faults:
            verdict, why = self._faults[contrast.name]
            return dataclasses.replace(base, verdict=verdict, why=why)
        if base.look is not None:
            base = dataclasses.replace(base, p_value=p_value(logs[: base.look]))
        if contrast.name in self._looks.found:
            look = self._looks.found[contrast.name]
            return self._decided(dataclasses.replace(base, look=look, p_value=p_value(logs[:look])), logs[:look], noisy)
        if contrast.kind == "again":
            return dataclasses.replace(base, verdict=SAME, why=_scatter(logs))
        if contrast.name in self._looks.without_gain:
            look = self._looks.without_gain[contrast.name]
            why = f"a gain of {self._settings.smallest:.1%} or more is excluded after {look} rounds"
            word = APART if contrast.kind == "interaction" else DROP
            return dataclasses.replace(base, verdict=word, why=why, look=look)
        return self._open(base, contrast, logs)

    def _decided(self, base: Verdict, logs: Sequence[float], noisy: bool) -> Verdict:
        better = fmean(logs) > 0
        after = f"after {base.look} rounds"
        if base.contrast.kind == "again":
            said = f"the baseline differs from itself by {math.expm1(abs(fmean(logs))):.1%} {after}"
            return dataclasses.replace(base, verdict=DIFFERS, why=said)
        if base.contrast.kind == "interaction":
            word = TOGETHER if better else AGAINST
            return dataclasses.replace(base, verdict=word, why=f"the interval excludes nothing {after}")
        if not better:
            return dataclasses.replace(base, verdict=DROP, why=f"slower {after}")
        if noisy:
            said = "the baseline run twice differs: this machine is too noisy"
            return dataclasses.replace(base, verdict=UNDECIDED, why=said)
        if base.numerics is not None and base.numerics.holds is None:
            said = "faster, but no losses were seen that could be compared"
            return dataclasses.replace(base, verdict=UNDECIDED, why=said)
        return dataclasses.replace(base, verdict=KEEP, why=f"faster {after}")

    def _open(self, base: Verdict, contrast: Contrast, logs: Sequence[float]) -> Verdict:
        first = self._settings.planned[0]
        if len(logs) < first:
            said = f"{len(logs)} of the {first} rounds of the first look"
            return dataclasses.replace(base, why=said, repeats=first)
        needed = self._looks.repeats_needed(contrast)
        if needed is None:
            return dataclasses.replace(base, why=f"no difference that {MOST_REPEATS} rounds would show on this machine")
        return dataclasses.replace(base, why=f"about {needed} rounds would decide", repeats=needed)


def _scatter(logs: Sequence[float]) -> str:
    if len(logs) < 2:
        return "one round tells nothing of the noise"
    return f"one run scatters by {math.expm1(stdev(logs) / math.sqrt(2)):.1%} against another"
