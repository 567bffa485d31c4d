# SPDX-License-Identifier: Apache-2.0
"""The rows of `steps.jsonl`: one JSON object a step."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

FILE = "steps.jsonl"
_ALWAYS = frozenset({"step", "time", "ms", "cpu_ms", "device_ms", "data_ms", "loss", "grad_norm", "samples"})


@dataclass
class StepRow:
    """What is known of one step; None is what could not be seen.

    Parameters
    ----------
    step : int
        Counted from 0.
    time : float
        Unix time of the step's end.
    ms : float or None
        Wall time since the end of the step before, without what a trace took to start and to write; None in the first,
        whose begin nobody knows.
    cpu_ms : float or None
        CPU time of this process since then, over all its threads: what other programs on the machine hardly change.
    device_ms : float or None
        Time between the two ends by the device's clock.
    data_ms : float or None
        Time spent in a DataLoader's `__next__`; None while the script uses none.
    loss : float or None
        Sum of the scalars on which `backward()` was called, before a `GradScaler`'s scale: what the gradient is of.
    losses : list of float or None
        Each of them, if there were several.
    grad_norm : float or None
        What `clip_grad_norm_` returned.
    samples : int or None
        As the model's configuration says.
    tokens : int or None
        Likewise.
    skipped : bool
        A `GradScaler` left the update out.
    compiled : bool
        `torch.compile` compiled something in this step.
    profiled : bool
        The profiler ran; the times are not those of a free step.
    peak_host_bytes, peak_allocated_bytes, peak_reserved_bytes : int or None
        Largest memory of the run so far; noted whenever rows are written, in the last of them.
    """

    step: int
    time: float
    ms: float | None = None
    cpu_ms: float | None = None
    device_ms: float | None = None
    data_ms: float | None = None
    loss: float | None = None
    losses: list[float] | None = None
    grad_norm: float | None = None
    samples: int | None = None
    tokens: int | None = None
    skipped: bool = False
    compiled: bool = False
    profiled: bool = False
    peak_host_bytes: int | None = None
    peak_allocated_bytes: int | None = None
    peak_reserved_bytes: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain data without flags that are not set and columns that few rows have."""
        data = {field.name: getattr(self, field.name) for field in fields(self)}
        return {key: value for key, value in data.items() if key in _ALWAYS or not (value is None or value is False)}

    def to_json(self) -> str:
        """One line; numbers that JSON cannot say are the strings nan, inf and -inf, which `float()` reads."""
        return json.dumps({key: _encoded(value) for key, value in self.to_dict().items()}, allow_nan=False)

    @classmethod
    def from_json(cls, line: str) -> StepRow:
        """Read a line that `to_json` made; keys of a later version are left out."""
        names = {field.name for field in fields(cls)}
        return cls(**{key: _decoded(value) for key, value in json.loads(line).items() if key in names})


def _encoded(value: Any) -> Any:
    if isinstance(value, list):
        return [_encoded(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return value


def _decoded(value: Any) -> Any:
    if isinstance(value, list):
        return [_decoded(item) for item in value]
    return float(value) if isinstance(value, str) else value


def read_rows(path: Path) -> list[StepRow]:
    """Rows of a `steps.jsonl`; a last line that a killed rank left unfinished is left out.

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError
        If a line other than an unfinished last one is not a row.
    """
    lines = path.read_text(encoding="utf-8").split("\n")
    # Each row ends in a newline, so what follows the last one is empty or unfinished.
    return [StepRow.from_json(line) for line in lines[:-1] if line]
