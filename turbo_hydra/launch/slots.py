# SPDX-License-Identifier: Apache-2.0
"""Devices handed out to jobs that run side by side, so that no two of them have the same one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from turbo_hydra.engine import visible


class Slots:
    """The devices of this machine that a sweep may use.

    Parameters
    ----------
    environment : mapping
        A list of visible devices in it is what there is; numbers, UUIDs or both.
    root : Path
        Where `proc` and `sys` are.

    Attributes
    ----------
    variable : str or None
        What says which devices a job has; None where there are no devices.
    total : int
        How many there are.
    """

    def __init__(self, environment: Mapping[str, str], root: Path = Path("/")) -> None:
        kind, found = visible.devices(environment, root)
        told = [name for name in visible.lists(environment, kind) if environment[name]]
        self.variable: str | None = told[0] if told else None
        if self.variable is not None:
            self._free = [entry.strip() for entry in environment[self.variable].split(",") if entry.strip()]
        elif kind is not None:
            self.variable = visible.HIP if kind == "hip" else visible.CUDA
            self._free = [str(number) for number in range(len(found))]
        else:
            self._free = []
        self.total = len(self._free)
        self._order = list(self._free)

    def take(self, count: int) -> list[str] | None:
        """Return `count` devices (all there are if the job wants more), None while too few are free."""
        count = min(count, self.total)
        if len(self._free) < count:
            return None
        taken, self._free = self._free[:count], self._free[count:]
        return taken

    def give(self, devices: list[str]) -> None:
        """Take devices back."""
        self._free = sorted([*self._free, *devices], key=self._order.index)
