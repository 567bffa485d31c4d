# SPDX-License-Identifier: Apache-2.0
"""The `ablation` group of the configuration, checked."""

from __future__ import annotations

import dataclasses
import difflib
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from turbo_hydra.engine.errors import TurboHydraError

STRATEGIES = ("leave_one_out", "one_at_a_time", "cumulative", "pairs", "factorial", "bisect", "list")
METRICS = ("step", "cpu", "device")
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[smh]?)")


class AblationError(TurboHydraError):
    """A setting under `ablation` is wrong, or the sweep that it asks for cannot be made."""


@dataclass(frozen=True)
class AblationSettings:
    """What is swept, how often, and how it is judged.

    Parameters
    ----------
    strategy : str
        Which rows there are; one of `STRATEGIES`.
    rows : tuple of tuple of str
        For the strategy `list`: the groups that are on in each row.
    groups : tuple of str or None
        Ids or globs of the groups that rows switch; None takes those that the config has on. Those that a glob or id
        matches are taken in the order given.
    repeats : int
        Number of rounds, at most.
    looks : tuple of int
        Numbers of rounds after which verdicts are drawn.
    steps : int or None
        Steps of each run; None lets the script end by itself.
    loss_steps : int
        How many first steps' losses are compared.
    close : float
        Largest relative distance of losses that the class `close` allows.
    smallest : float
        The smallest gain of interest: 0.01 is 1 %.
    error : float
        Chance of any wrong `keep` in a sweep.
    metric : {"step", "cpu", "device"}
        Which time of a step is judged: on the wall, of the process's CPU, between its ends by the device's clock.
    budget : float or None
        Seconds that the sweep may take.
    parallel_jobs : int
        Runs at a time, on a CPU only.
    seed : int
        Of the order of the rows.
    page : str or None
        A Markdown file whose text between two marks gives way to the sweep's tables.
    """

    strategy: str = "leave_one_out"
    rows: tuple[tuple[str, ...], ...] = ()
    groups: tuple[str, ...] | None = None
    repeats: int = 6
    looks: tuple[int, ...] = (3, 6, 12)
    steps: int | None = 40
    loss_steps: int = 20
    close: float = 1e-4
    smallest: float = 0.01
    error: float = 0.05
    metric: str = "step"
    budget: float | None = None
    parallel_jobs: int = 1
    seed: int = 0
    page: str | None = None

    @classmethod
    def from_mapping(cls, data: Mapping[str, Any]) -> AblationSettings:
        """Check a plain mapping.

        Raises
        ------
        AblationError
            Naming the key, what was found and what is expected.
        """
        names = [field.name for field in dataclasses.fields(cls)]
        for key in data:
            if key not in names:
                near = difflib.get_close_matches(str(key), names, 1)
                hint = f"did you mean 'ablation.{near[0]}'" if near else f"known are {', '.join(names)}"
                raise AblationError(f"unknown setting 'ablation.{key}'; {hint}")
        settings = cls(**{key: _CHECKS[key](f"ablation.{key}", value) for key, value in data.items()})
        if settings.strategy == "list" and not settings.rows:
            raise AblationError("'ablation.strategy=list' needs 'ablation.rows', such as [[],[tiny_vla.rope_once]]")
        if settings.rows and settings.strategy != "list":
            raise AblationError(f"'ablation.rows' is for strategy=list, found strategy={settings.strategy}")
        return settings

    @property
    def planned(self) -> tuple[int, ...]:
        """The looks of which the bounds are made: those planned, and more where more repeats are asked for.

        Fewer repeats than the last look change no bound, so that a sweep may be continued.
        """
        planned = self.looks
        while planned[-1] < self.repeats:
            planned = (*planned, min(2 * planned[-1], self.repeats))
        return planned


def duration(text: object, key: str = "ablation.budget") -> float:
    """Seconds of `90`, `45s`, `30m` or `1.5h`.

    Raises
    ------
    AblationError
        If it is none of these, or nothing.
    """
    found = _DURATION.fullmatch(str(text).strip()) if not isinstance(text, bool) else None
    seconds = float(found["number"]) * _UNITS[found["unit"]] if found else 0.0
    if seconds <= 0:
        raise AblationError(f"'{key}' must be a time such as 90s, 30m or 1.5h, found {text!r}")
    return seconds


def _refuse(key: str, expected: str, found: object) -> AblationError:
    return AblationError(f"'{key}' must be {expected}, found {found!r}")


def _one_of(known: Sequence[str]) -> Callable[[str, object], str]:
    def check(key: str, value: object) -> str:
        if value not in known:
            near = difflib.get_close_matches(str(value), known, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise AblationError(f"'{key}' must be one of {', '.join(known)}, found {value!r}{hint}")
        return str(value)

    return check


def _count(least: int) -> Callable[[str, object], int]:
    def check(key: str, value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise _refuse(key, f"a whole number, {least} or more", value)
        return value

    return check


def _share(key: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1:
        raise _refuse(key, "a number between 0 and 1", value)
    return float(value)


def _tolerance(key: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
        raise _refuse(key, "a number, 0 or more", value)
    return float(value)


def _strings(key: str, value: object) -> tuple[str, ...]:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise _refuse(key, "a list of group ids", value)
    return tuple(dict.fromkeys(names))


def _groups(key: str, value: object) -> tuple[str, ...] | None:
    return None if value is None else _strings(key, value)


def _rows(key: str, value: object) -> tuple[tuple[str, ...], ...]:
    if value is None:
        return ()
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise _refuse(key, "a list of lists of group ids", value)
    return tuple(_strings(key, row) for row in value)


def _looks(key: str, value: object) -> tuple[int, ...]:
    wrong = _refuse(key, "a list of growing numbers of rounds, 2 or more", value)
    if isinstance(value, str) or not isinstance(value, Sequence) or not value:
        raise wrong
    looks = tuple(value)
    if not all(isinstance(look, int) and not isinstance(look, bool) and look >= 2 for look in looks):
        raise wrong
    if list(looks) != sorted(set(looks)):
        raise wrong
    return looks


def _steps(key: str, value: object) -> int | None:
    return None if value is None else _count(3)(key, value)


def _page(key: str, value: object) -> str | None:
    if value is not None and (not isinstance(value, str) or not value):
        raise _refuse(key, "the name of a Markdown file", value)
    return value


def _budget(key: str, value: object) -> float | None:
    return None if value is None else duration(value, key)


_CHECKS: dict[str, Callable[[str, object], Any]] = {
    "strategy": _one_of(STRATEGIES),
    "rows": _rows,
    "groups": _groups,
    "repeats": _count(1),
    "looks": _looks,
    "steps": _steps,
    "loss_steps": _count(1),
    "close": _tolerance,
    "smallest": _share,
    "error": _share,
    "metric": _one_of(METRICS),
    "budget": _budget,
    "parallel_jobs": _count(1),
    "seed": _count(0),
    "page": _page,
}
