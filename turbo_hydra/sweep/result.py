# SPDX-License-Identifier: Apache-2.0
"""What one run of a row gave, read from the files that the run left."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from turbo_hydra.launch import files, outcome
from turbo_hydra.measure.comparing import rank_rows

SCHEMA_VERSION = "turbo_hydra/ablation-result/v1"
OUT_OF_MEMORY = "out of memory"
_MEMORY = re.compile(r"out of memory|OutOfMemoryError|Cannot allocate memory|DefaultCPUAllocator: can't allocate", re.I)
# How much of a log's end is searched for the reason of a failure.
_TAIL = 20_000


@dataclass(frozen=True)
class Result:
    """One run.

    Parameters
    ----------
    status : {"ok", "failed"}
        Whether the run ended well, with steps to judge.
    reason : str
        Why it failed.
    seconds : float
        How long it took, start and end included.
    step_ms, cpu_ms, device_ms : float or None
        Median times of a steady step; of several ranks the slowest one's.
    samples_per_s, data_wait_share, launches : float or None
        As the meter says.
    peak_host_bytes, peak_device_bytes : int or None
        Largest memory of a rank.
    losses : list of float or None
        Of the first steps of rank 0; None where none was seen.
    hits : dict
        Group to its status and number of calls that took the replacement; None for calls that nobody counts.
    began : float
        Unix time of its start.
    facts : dict
        What the ranks ran on: may not differ between rows that are compared.
    """

    status: str
    reason: str = ""
    seconds: float = 0.0
    step_ms: float | None = None
    cpu_ms: float | None = None
    device_ms: float | None = None
    samples_per_s: float | None = None
    data_wait_share: float | None = None
    launches: float | None = None
    peak_host_bytes: int | None = None
    peak_device_bytes: int | None = None
    steps: int = 0
    losses: list[float | None] = field(default_factory=list)
    hits: dict[str, dict[str, Any]] = field(default_factory=dict)
    began: float = 0.0
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether there is a time."""
        return self.status == "ok"

    def to_dict(self) -> dict[str, Any]:
        """Plain data; losses that JSON cannot say are strings."""
        data = dataclasses.asdict(self)
        data["losses"] = [value if value is None or math.isfinite(value) else str(value) for value in self.losses]
        return {"schema_version": SCHEMA_VERSION, **data}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Result:
        """Read what `to_dict` made; keys of a later version are left out."""
        names = {item.name for item in dataclasses.fields(cls)}
        known = {key: value for key, value in data.items() if key in names}
        known["losses"] = [None if value is None else float(value) for value in known.get("losses", ())]
        return cls(**known)


def read(run: Path, seconds: float, began: float, loss_steps: int) -> Result | None:
    """The result of the run whose folder this is; None if it has not ended."""
    report = files.read_json(run / "turbo" / "report.json")
    if not isinstance(report, dict):
        return None
    steps = report.get("steps") or {}
    ranks = list((steps.get("ranks") or {}).values())
    status = int(report.get("exit_status") or 0)
    common: dict[str, Any] = {
        "seconds": seconds,
        "began": began,
        "hits": _hits(report),
        "facts": _facts(report),
        "steps": int(steps.get("count") or 0),
    }
    if status:
        return Result("failed", failure(run, report, status), **common)
    median = _over(ranks, "median_ms", max)
    if median is None:
        return Result("failed", "no steady step was seen: too few steps, or none that ends in an optimizer", **common)
    memory = [rank.get("peak_memory") or {} for rank in ranks]
    host, device = _over(memory, "host_bytes", max), _over(memory, "device_allocated_bytes", max)
    return Result(
        "ok",
        step_ms=median,
        cpu_ms=_over(ranks, "cpu_median_ms", max),
        device_ms=_over(ranks, "device_median_ms", max),
        samples_per_s=steps.get("samples_per_s"),
        data_wait_share=_over(ranks, "data_wait_share", max),
        launches=_over(ranks, "launches_per_step", max),
        peak_host_bytes=None if host is None else int(host),
        peak_device_bytes=None if device is None else int(device),
        losses=_losses(run, loss_steps),
        **common,
    )


def failure(run: Path, report: Mapping[str, Any], status: int) -> str:
    """Why a run failed, in a few words."""
    words = json.dumps(report.get("failure") or {})
    words += "".join(_tail(path) for path in sorted(run.glob("turbo/ranks/*/stderr.log")))
    if _MEMORY.search(words):
        return OUT_OF_MEMORY
    said = f"it ended with {outcome.describe(status)}"
    if status == 128 + 9:
        return f"{said}; the system kills so when memory runs out"
    last = [line for line in words.splitlines() if re.match(r"\w[\w.]*(Error|Exception|Exit)\b", line)]
    return f"{said}: {last[-1][:200]}" if last else said


def _tail(path: Path) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def _over(found: list[Any], name: str, combine: Any) -> float | None:
    values = [item.get(name) for item in found]
    known = [value for value in values if value is not None]
    return combine(known) if known and len(known) == len(values) else None


def _losses(run: Path, loss_steps: int) -> list[float | None]:
    try:
        rows = rank_rows(run)
    except (OSError, ValueError):
        return []
    losses = [row.loss for row in rows if row.step < loss_steps]
    return losses if any(loss is not None for loss in losses) else []


def _hits(report: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    found = {}
    for entry in report.get("execution") or ():
        if entry.get("observer"):
            continue
        tallies = [member["hits"] for member in entry.get("members", ()) if member.get("hits")]
        calls = sum((hits.get("replacement") or 0) + (hits.get("traced") or 0) for hits in tallies)
        found[entry["group"]] = {
            "status": entry["status"],
            "reasons": list(entry.get("reasons") or ()),
            "calls": calls if tallies else None,
        }
    return found


def _facts(report: Mapping[str, Any]) -> dict[str, Any]:
    environment = (report.get("prepared_execution") or {}).get("environment") or {}
    repository = environment.get("repository") or {}
    return {
        "host": environment.get("host"),
        "python": environment.get("python"),
        "versions": environment.get("versions") or {},
        "commit": repository.get("commit"),
    }
