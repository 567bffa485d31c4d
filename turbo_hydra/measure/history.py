# SPDX-License-Identifier: Apache-2.0
"""Summary of the steps of one rank, kept as the rows come."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from typing import Any

from turbo_hydra.measure.rows import StepRow
from turbo_hydra.measure.statistics import median, quantile, warmup_length


class History:
    """Durations of all steps, first and last values of the rest: 41 bytes a step.

    Parameters
    ----------
    warmup : int or None
        Number of first steps that are warm-up; None finds it from the times.
    operations : float or None
        Floating-point operations of one step of this rank.
    peak_tflops : float or None
        The rate, in 10^12 operations a second, that is a utilisation of 1.
    """

    def __init__(
        self, warmup: int | None = None, *, operations: float | None = None, peak_tflops: float | None = None
    ) -> None:
        self._warmup = warmup
        self._operations = operations
        self._peak = peak_tflops
        self._ms = array("d")
        self._cpu_ms = array("d")
        self._device_ms = array("d")
        self._data_ms = array("d")
        self._samples = array("d")
        self._tokens: int | None = None
        self._disturbed = array("b")
        self._skipped = 0
        self._compiled = 0
        self._first: dict[str, float] = {}
        self._last: dict[str, float] = {}
        self._statistics: tuple[int, dict[str, Any]] | None = None

    def add(self, rows: Sequence[StepRow]) -> None:
        """Take rows in order."""
        for row in rows:
            self._ms.append(_number(row.ms))
            self._cpu_ms.append(_number(row.cpu_ms))
            self._device_ms.append(_number(row.device_ms))
            self._data_ms.append(_number(row.data_ms))
            self._samples.append(_number(row.samples))
            self._tokens = row.tokens if row.tokens is not None else self._tokens
            self._disturbed.append(row.compiled or row.profiled)
            self._skipped += row.skipped
            self._compiled += row.compiled
            for name, value in (("loss", row.loss), ("grad_norm", row.grad_norm)):
                if value is not None:
                    self._first.setdefault(name, value)
                    self._last[name] = value

    @property
    def count(self) -> int:
        """Number of steps."""
        # The array that `add` fills last: another thread may ask for a summary at any time.
        return len(self._disturbed)

    def summary(self) -> dict[str, Any]:
        """Plain data; times in milliseconds, None where nothing was seen.

        `count` is of all steps and `steady` of those behind `median_ms` and its like: neither warm-up nor disturbed by
        a compilation or the profiler. In a long run, statistics follow when it has grown by a hundredth.
        """
        count = self.count
        if self._statistics is None or count > self._statistics[0] + self._statistics[0] // 100:
            self._statistics = (count, self._compute(count))
        return {
            "count": count,
            **self._statistics[1],
            "compiled_steps": self._compiled,
            "skipped_steps": self._skipped,
            "first_loss": self._first.get("loss"),
            "last_loss": self._last.get("loss"),
            "first_grad_norm": self._first.get("grad_norm"),
            "last_grad_norm": self._last.get("grad_norm"),
        }

    def finish(self) -> None:
        """Let the next summary take every step into account."""
        self._statistics = None

    def _compute(self, count: int) -> dict[str, Any]:
        # Whoever starts a step is not seen for the first; it counts as endless, so it is warm-up.
        times = [
            math.inf if index == 0 and math.isnan(value) else value for index, value in enumerate(self._ms[:count])
        ]
        warmup = warmup_length(times) if self._warmup is None else min(self._warmup, count)
        steady = [index for index in range(warmup, count) if not self._disturbed[index] and math.isfinite(times[index])]
        wall = [times[index] for index in steady]
        cpu = _seen(self._cpu_ms, steady)
        device = _seen(self._device_ms, steady)
        waits = [index for index in steady if not math.isnan(self._data_ms[index])]
        samples = _seen(self._samples, steady)
        typical = median(wall) if wall else None
        held = median(samples) if samples else None
        # 10^12 operations a second are 10^9 a millisecond.
        rate = self._operations / typical / 1e9 if self._operations and typical else None
        waited = math.fsum(self._data_ms[index] for index in waits)
        return {
            "steady": len(steady),
            "median_ms": typical,
            "p10_ms": quantile(wall, 0.1) if wall else None,
            "p90_ms": quantile(wall, 0.9) if wall else None,
            "cpu_median_ms": median(cpu) if cpu else None,
            "device_median_ms": median(device) if device else None,
            "samples_per_step": held,
            "samples_per_s": 1000 * held / typical if held and typical else None,
            "tokens_per_s": 1000 * self._tokens / typical if self._tokens and typical else None,
            "tflops": rate,
            "utilisation": rate / self._peak if rate and self._peak else None,
            "data_wait_share": waited / math.fsum(times[index] for index in waits) if waits else None,
            "warmup": {"steps": warmup, "ms": math.fsum(_seen(self._ms, range(warmup)))},
        }


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)


def _seen(values: Sequence[float], indices: Sequence[int]) -> list[float]:
    return [values[index] for index in indices if not math.isnan(values[index])]
