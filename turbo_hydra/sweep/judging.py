# SPDX-License-Identifier: Apache-2.0
"""From the results of all rounds to a verdict for each group. Pure: the same results give the same verdicts."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from turbo_hydra.measure.comparing import LossDistance
from turbo_hydra.measure.sequential import holm, pocock_level
from turbo_hydra.measure.statistics import Interval, ratio_interval, student_cdf, student_quantile
from turbo_hydra.sweep import numerics
from turbo_hydra.sweep.numerics import Numerics
from turbo_hydra.sweep.result import OUT_OF_MEMORY, Result
from turbo_hydra.sweep.rows import Contrast, Design
from turbo_hydra.sweep.settings import AblationSettings

KEEP, DROP, UNDECIDED, BROKEN = "keep", "drop", "undecided", "broken"
# Of two groups together: what their being together adds to what each gives alone.
TOGETHER, AGAINST, APART = "gains together", "costs together", "adds up"
Results = Mapping[tuple[str, int], Result]
# What projections are asked for: an effect as large as the estimate is found with this probability.
POWER = 0.9
_POWER_Z = 1.2815515655446004
# Beyond this many rounds the answer is that this machine does not tell.
MOST_REPEATS = 200


@dataclass(frozen=True)
class Verdict:
    """What is said of a contrast.

    Parameters
    ----------
    contrast : Contrast
        What was compared.
    verdict : str
        One of the words above; `same` and `differs` of the baseline run twice.
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
        return self.noise.verdict == "differs"


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
        self._metric = settings.metric
        self._level = pocock_level(settings.planned, settings.error)
        self._logs = {contrast.name: self._rounds(contrast) for contrast in design.contrasts}
        self._classes = {toggle.id: toggle.numerics for toggle in design.toggles}
        self._broken: dict[str, tuple[str, str]] = {}
        self._found: dict[str, int] = {}
        self._without_gain: dict[str, int] = {}

    def judge(self) -> Judgement:
        noise = numerics.determinism(
            [
                result
                for (name, _), result in sorted(self._results.items(), key=lambda item: item[0][1])
                if name == self._design.baseline or self._design.row(name).again
            ]
        )
        numeric = {
            contrast.name: numerics.judge(
                (self._classes.get(id, "close") for id in contrast.groups),
                self._pairs(contrast),
                noise,
                self._settings.close,
            )
            for contrast in self._design.contrasts
        }
        for contrast in self._design.contrasts:
            self._look_for_faults(contrast, numeric[contrast.name])
        for look in self._settings.planned:
            self._look(look)
        again = next(contrast for contrast in self._design.contrasts if contrast.kind == "again")
        aa = self._verdict(again, None, noisy=False)
        verdicts = tuple(
            aa if contrast is again else self._verdict(contrast, numeric[contrast.name], aa.verdict == "differs")
            for contrast in self._design.contrasts
        )
        return Judgement(verdicts, self._metric, self._level, aa, noise)

    # What the rounds gave

    def _rounds(self, contrast: Contrast) -> list[float]:
        """The log of the gain in each round in which all the contrast's rows have a time."""
        numbers = sorted({number for _, number in self._results})
        found = []
        for number in numbers:
            total = 0.0
            for name, weight in contrast.weights.items():
                result = self._results.get((name, number))
                time = None if result is None else value(result, self._metric)
                if time is None or time <= 0:
                    break
                total += weight * math.log(time)
            else:
                found.append(total)
        return found

    def _pairs(self, contrast: Contrast) -> list[tuple[Result, Result]]:
        numbers = sorted({number for _, number in self._results})
        found = []
        for with_, without in contrast.pairs:
            for number in numbers:
                pair = self._results.get((with_, number)), self._results.get((without, number))
                if pair[0] is not None and pair[1] is not None and pair[0].ok and pair[1].ok:
                    found.append((pair[0], pair[1]))
        return found

    def _of(self, name: str) -> list[Result]:
        return [result for (row, _), result in self._results.items() if row == name]

    # What settles a contrast whatever the speed

    def _look_for_faults(self, contrast: Contrast, found: Numerics) -> None:
        if contrast.kind == "again":
            return
        failed = self._failures(contrast)
        if failed is not None:
            self._broken[contrast.name] = failed
            return
        for with_, _ in contrast.pairs:
            unused = next((said for result in self._of(with_) if (said := _unused(contrast, result))), None)
            if unused:
                self._broken[contrast.name] = BROKEN, unused
                return
        # What two groups change together was held to their classes when each was judged.
        if found.holds is False and contrast.kind == "group":
            self._broken[contrast.name] = BROKEN, found.why

    def _failures(self, contrast: Contrast) -> tuple[str, str] | None:
        with_ = {name for name, _ in contrast.pairs}
        failed = {
            name: next(result for result in self._of(name) if not result.ok)
            for name in contrast.weights
            if any(not result.ok for result in self._of(name))
        }
        if not failed:
            return None
        name, result = next(iter(failed.items()))
        said = f"the row '{name}' failed: {result.reason}"
        if result.reason == OUT_OF_MEMORY:
            hungry = [
                toggle.id
                for toggle in self._design.toggles
                if toggle.id in self._design.row(name).on and takes_memory(toggle.memory)
            ]
            if hungry:
                said += f"; of the groups that are on there, these say that they take memory: {', '.join(hungry)}"
        only_with = set(failed) <= with_ and contrast.kind == "group"
        return (BROKEN if only_with else UNDECIDED), said

    # The statistics

    def _look(self, look: int) -> None:
        """Decide what can be decided after this many rounds."""
        families: dict[str, dict[str, float]] = {"group": {}, "interaction": {}}
        groups = sum(contrast.kind == "group" for contrast in self._design.contrasts)
        for contrast in self._design.contrasts:
            logs = self._logs[contrast.name][:look]
            settled = contrast.name in self._found or contrast.name in self._without_gain
            if settled or contrast.name in self._broken or len(logs) < look:
                continue
            if contrast.kind == "again":
                # Held to what the first of the groups is held to, whatever becomes of the others: it is no discovery
                # that is looked for here, and a false alarm takes every verdict away.
                if _p_value(logs) <= self._level / max(1, groups):
                    self._found[contrast.name] = look
                continue
            families[contrast.kind][contrast.name] = _p_value(logs)
        for family in families.values():
            for name in holm(family, self._level):
                self._found[name] = look
            for name in family:
                if name not in self._found and self._excludes_gains(self._logs[name][:look]):
                    self._without_gain[name] = look

    def _excludes_gains(self, logs: Sequence[float]) -> bool:
        half = student_quantile(1 - self._level / 2, len(logs) - 1) * _error(logs)
        return fmean(logs) + half < math.log1p(self._settings.smallest)

    def _family(self, contrast: Contrast) -> int:
        """How many hypotheses share the level with this one."""
        return sum(
            other.kind == contrast.kind and other.name not in self._broken and other.name not in self._found
            for other in self._design.contrasts
        )

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
        if contrast.name in self._broken:
            verdict, why = self._broken[contrast.name]
            return dataclasses.replace(base, verdict=verdict, why=why)
        if base.look is not None:
            base = dataclasses.replace(base, p_value=_p_value(logs[: base.look]))
        if contrast.name in self._found:
            look = self._found[contrast.name]
            return self._decided(
                dataclasses.replace(base, look=look, p_value=_p_value(logs[:look])), logs[:look], noisy
            )
        if contrast.kind == "again":
            return dataclasses.replace(base, verdict="same", why=_scatter(logs))
        if contrast.name in self._without_gain:
            look = self._without_gain[contrast.name]
            why = f"a gain of {self._settings.smallest:.1%} or more is excluded after {look} rounds"
            word = APART if contrast.kind == "interaction" else DROP
            return dataclasses.replace(base, verdict=word, why=why, look=look)
        return self._open(base, contrast, logs)

    def _decided(self, base: Verdict, logs: Sequence[float], noisy: bool) -> Verdict:
        better = fmean(logs) > 0
        after = f"after {base.look} rounds"
        if base.contrast.kind == "again":
            said = f"the baseline differs from itself by {math.expm1(abs(fmean(logs))):.1%} {after}"
            return dataclasses.replace(base, verdict="differs", why=said)
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
        needed = self.repeats_needed(contrast, logs)
        if needed is None:
            return dataclasses.replace(base, why=f"no difference that {MOST_REPEATS} rounds would show on this machine")
        return dataclasses.replace(base, why=f"about {needed} rounds would decide", repeats=needed)

    def repeats_needed(self, contrast: Contrast, logs: Sequence[float]) -> int | None:
        """The first look, planned or a doubling beyond, at which a gain like the estimate would probably be decided.

        Where that is beyond reach, a gain that is larger by a standard error counts: the estimate may be that much off.
        """
        mean, spread = fmean(logs), stdev(logs)
        return self._look_for(contrast, abs(mean), mean, spread, len(logs)) or self._look_for(
            contrast, mean + _error(logs), mean, spread, len(logs)
        )

    def _look_for(self, contrast: Contrast, gain: float, mean: float, spread: float, rounds: int) -> int | None:
        shared = max(1, self._family(contrast))
        smallest = math.log1p(self._settings.smallest)
        for look in _later_looks(self._settings.planned, rounds):
            error = spread / math.sqrt(look)
            shown = student_quantile(1 - self._level / 2 / shared, look - 1) + _POWER_Z
            excluded = student_quantile(1 - self._level / 2, look - 1) + _POWER_Z
            if gain >= shown * error or mean + excluded * error < smallest:
                return look
        return None


def takes_memory(about: str) -> bool:
    """Whether what a group says of memory is that it takes some."""
    return not about.strip().lower().startswith(("none", "less", "no ", "same")) and bool(about.strip())


def _unused(contrast: Contrast, result: Result) -> str | None:
    if not result.ok:
        return None
    for id in contrast.groups:
        said = result.hits.get(id)
        if said is None:
            return f"{id} is in no report of its rows"
        if said["status"] != "applied":
            reasons = ", ".join(said["reasons"])
            return f"{id} was not applied: {said['status']}{f' ({reasons})' if reasons else ''}"
        if said["calls"] == 0:
            return f"{id} was applied and never called"
    return None


def _later_looks(planned: Sequence[int], rounds: int) -> Iterable[int]:
    later = [look for look in planned if look > rounds]
    yield from later
    look = planned[-1]
    while (look := 2 * look) <= MOST_REPEATS:
        if look > rounds:
            yield look


def _error(logs: Sequence[float]) -> float:
    return stdev(logs) / math.sqrt(len(logs))


def _p_value(logs: Sequence[float]) -> float:
    error = _error(logs)
    if error == 0:
        return 0.0 if fmean(logs) else 1.0
    return 2 * student_cdf(-abs(fmean(logs)) / error, len(logs) - 1)


def _scatter(logs: Sequence[float]) -> str:
    if len(logs) < 2:
        return "one round tells nothing of the noise"
    return f"one run scatters by {math.expm1(stdev(logs) / math.sqrt(2)):.1%} against another"
