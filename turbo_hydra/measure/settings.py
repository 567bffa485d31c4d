# SPDX-License-Identifier: Apache-2.0
"""The `measure` group of the configuration, checked."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from turbo_hydra.engine.errors import TurboHydraError

WRITERS = ("csv", "tensorboard")
PROGRESS = ("auto", "bar", "lines", "off")


class MeasureSettingsError(TurboHydraError):
    """A setting under `measure` is unknown or of the wrong type."""


@dataclass(frozen=True)
class MeasureSettings:
    """What the meter does.

    Parameters
    ----------
    enabled : bool
        False installs no meter.
    interval : float
        Seconds between two writes of rows; values on a device are read then and not before.
    step_every : int
        Number of optimizer updates that make one step, for scripts that update at every micro-batch.
    warmup : int or None
        Number of first steps left out of the steady statistics; None finds them from the step times.
    profile : int
        Number of steps to trace with torch's profiler; 0 traces none.
    stop_after : int or None
        Number of steps after which the script ends, as if it had called `sys.exit(0)` there; None lets it go on.
    writers : tuple of {"csv", "tensorboard"}
        Where rows go beside `steps.jsonl`.
    progress : {"auto", "bar", "lines", "off"}
        `auto` is a bar on a terminal and plain lines elsewhere.
    progress_interval : float
        Seconds between two plain lines.
    peak_tflops : float or None
        What one rank's device can do at most, in 10^12 operations a second of the type that the model computes in: that
        rate is a utilisation of 1. None leaves utilisation out.
    """

    enabled: bool = True
    interval: float = 2.0
    step_every: int = 1
    warmup: int | None = None
    profile: int = 0
    stop_after: int | None = None
    writers: tuple[str, ...] = ()
    progress: str = "auto"
    progress_interval: float = 10.0
    peak_tflops: float | None = None

    @classmethod
    def from_mapping(cls, data: Mapping[str, Any]) -> MeasureSettings:
        """Check a plain mapping.

        Raises
        ------
        MeasureSettingsError
            Naming the key, what was found and what is expected.
        """
        names = [field.name for field in dataclasses.fields(cls)]
        for key in data:
            if key not in names:
                near = difflib.get_close_matches(str(key), names, 1)
                hint = f"did you mean 'measure.{near[0]}'" if near else f"known are {', '.join(names)}"
                raise MeasureSettingsError(f"unknown setting 'measure.{key}'; {hint}")
        checked: dict[str, Any] = {key: _CHECKS[key](f"measure.{key}", value) for key, value in data.items()}
        return cls(**checked)


def _refuse(key: str, expected: str, found: object) -> MeasureSettingsError:
    return MeasureSettingsError(f"'{key}' must be {expected}, found {found!r}")


def _flag(key: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise _refuse(key, "true or false", value)
    return value


def _seconds(key: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < float("inf"):
        raise _refuse(key, "a number of seconds, 0 or more", value)
    return float(value)


def _count(key: str, value: object, least: int = 0) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise _refuse(key, f"a whole number, {least} or more", value)
    return value


def _rate(key: str, value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < float("inf"):
        raise _refuse(key, "a number of 10^12 operations a second, above 0", value)
    return float(value)


def _step_every(key: str, value: object) -> int:
    return _count(key, value, 1)


def _warmup(key: str, value: object) -> int | None:
    return None if value is None else _count(key, value)


def _stop_after(key: str, value: object) -> int | None:
    return None if value is None else _count(key, value, 1)


def _writers(key: str, value: object) -> tuple[str, ...]:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, Sequence) or not all(name in WRITERS for name in names):
        raise _refuse(key, f"a list of {' and '.join(WRITERS)}", value)
    return tuple(dict.fromkeys(names))


def _progress(key: str, value: object) -> str:
    # YAML 1.1 reads a bare `off` as false.
    if value is False:
        return "off"
    if not isinstance(value, str) or value not in PROGRESS:
        raise _refuse(key, f"one of {', '.join(PROGRESS)}", value)
    return value


_CHECKS: dict[str, Callable[[str, object], Any]] = {
    "enabled": _flag,
    "interval": _seconds,
    "step_every": _step_every,
    "warmup": _warmup,
    "profile": _count,
    "stop_after": _stop_after,
    "writers": _writers,
    "progress": _progress,
    "progress_interval": _seconds,
    "peak_tflops": _rate,
}
