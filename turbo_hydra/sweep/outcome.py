# SPDX-License-Identifier: Apache-2.0
"""`ablation.json`: all that is rendered, as plain data."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from statistics import median
from typing import Any

from turbo_hydra.measure.comparing import LossDistance
from turbo_hydra.measure.statistics import Interval, ratio_interval
from turbo_hydra.sweep import numerics
from turbo_hydra.sweep.judging import Results, value
from turbo_hydra.sweep.result import Result
from turbo_hydra.sweep.rows import Design, Row
from turbo_hydra.sweep.settings import AblationSettings
from turbo_hydra.sweep.verdicts import Judgement, Verdict

SCHEMA_VERSION = "turbo_hydra/ablation/v1"
FILE = "ablation.json"


def to_data(
    design: Design,
    results: Results,
    settings: AblationSettings,
    judgement: Judgement | None,
    *,
    model: str,
    basis: Mapping[str, Any],
    complete: bool,
    notes: Sequence[str] = (),
    **more: Any,
) -> dict[str, Any]:
    """The sweep as plain data; numbers that JSON cannot say are None."""
    return {
        "schema_version": SCHEMA_VERSION,
        "model": model,
        "strategy": design.strategy,
        "complete": complete,
        "written": time.time(),
        "settings": asdict(settings),
        "metric": settings.metric,
        "looks": list(settings.planned),
        "level": None if judgement is None else judgement.level,
        "baseline": design.baseline,
        "determinism": None if judgement is None else distance_data(judgement.determinism),
        "noisy": False if judgement is None else judgement.noisy,
        "verdicts": [] if judgement is None else [verdict_data(verdict) for verdict in judgement.verdicts],
        "rows": [_row(row, design, results, settings, judgement) for row in design.rows],
        "seconds": math.fsum(result.seconds for result in results.values()),
        "runs": len(results),
        "notes": [*design.notes, *notes],
        **more,
        "basis": dict(basis),
    }


def verdict_data(verdict: Verdict) -> dict[str, Any]:
    """A verdict as plain data."""
    found = verdict.numerics
    return {
        "name": verdict.contrast.name,
        "kind": verdict.contrast.kind,
        "groups": list(verdict.contrast.groups),
        "rows": [name for pair in verdict.contrast.pairs for name in pair],
        "verdict": verdict.verdict,
        "why": verdict.why,
        "gain": _interval(verdict.gain),
        "p_value": verdict.p_value,
        "rounds": verdict.rounds,
        "look": verdict.look,
        "repeats": verdict.repeats,
        "numerics": None
        if found is None
        else {"declared": found.declared, "holds": found.holds, "why": found.why, **distance_data(found.distance)},
    }


def distance_data(distance: LossDistance) -> dict[str, Any]:
    """A distance of losses as plain data."""
    return {name: _finite(number) for name, number in asdict(distance).items()}


def _row(
    row: Row, design: Design, results: Results, settings: AblationSettings, judgement: Judgement | None
) -> dict[str, Any]:
    runs = {number: result for (name, number), result in results.items() if name == row.name}
    good = [result for result in runs.values() if result.ok]
    base = {number: result for (name, number), result in results.items() if name == design.baseline and result.ok}
    pairs = [(base[number], result) for number, result in runs.items() if result.ok and number in base]
    distance = numerics.farthest(numerics.losses(one, other) for one, other in pairs)
    failed = next((result.reason for result in runs.values() if not result.ok), None)
    return {
        "name": row.name,
        "on": list(row.on),
        "off": [toggle.id for toggle in design.toggles if toggle.id not in row.on],
        "baseline": row.name == design.baseline,
        "again": row.again,
        "note": row.note,
        "rounds": len(good),
        "failed": failed,
        "step_ms": _median(good, "step_ms"),
        "cpu_ms": _median(good, "cpu_ms"),
        "device_ms": _median(good, "device_ms"),
        # More than 1: faster than the baseline.
        "ratio": None if row.name == design.baseline else _ratio(pairs, settings.metric),
        "samples_per_s": _median(good, "samples_per_s"),
        "data_wait_share": _median(good, "data_wait_share"),
        "peak_host_bytes": _median(good, "peak_host_bytes"),
        "peak_device_bytes": _median(good, "peak_device_bytes"),
        "launches": _median(good, "launches"),
        "loss": None if row.name == design.baseline or not distance.steps else distance_data(distance),
        "hits": good[-1].hits if good else {},
        "judges": next(
            (
                verdict.contrast.name
                for verdict in (judgement.verdicts if judgement else ())
                if verdict.contrast.kind != "interaction"
                and row.name in verdict.contrast.weights
                and row.name != design.baseline
                and _own(verdict, row, design)
            ),
            None,
        ),
        "seconds": {str(number): result.seconds for number, result in sorted(runs.items())},
        "values": {str(number): value(result, settings.metric) for number, result in sorted(runs.items())},
    }


def _own(verdict: Verdict, row: Row, design: Design) -> bool:
    """Whether a row is there for this verdict: in a factorial every row is there for all."""
    if len(verdict.contrast.pairs) != 1:
        return False
    if row.again:
        return True
    with_, without = verdict.contrast.pairs[0]
    return row.name == (without if with_ == design.baseline else with_)


def _ratio(pairs: Sequence[tuple[Result, Result]], metric: str) -> dict[str, Any] | None:
    ratios = [
        one / other
        for base, result in pairs
        if (one := value(base, metric)) is not None and (other := value(result, metric)) is not None and other > 0
    ]
    return _interval(ratio_interval(ratios)) if ratios else None


def _interval(interval: Interval | None) -> dict[str, Any] | None:
    if interval is None:
        return None
    known = interval.count > 1
    return {
        "value": interval.value,
        "low": interval.low if known else None,
        "high": interval.high if known else None,
        "rounds": interval.count,
    }


def _median(results: Sequence[Result], name: str) -> float | None:
    values = [getattr(result, name) for result in results]
    known = [number for number in values if number is not None]
    return median(known) if known else None


def _finite(number: Any) -> Any:
    return None if isinstance(number, float) and not math.isfinite(number) else number
