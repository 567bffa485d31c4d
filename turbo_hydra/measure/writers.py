# SPDX-License-Identifier: Apache-2.0
"""Where rows go: `steps.jsonl` always, CSV and TensorBoard when asked."""

from __future__ import annotations

import csv
import dataclasses
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from turbo_hydra.measure.rows import FILE, StepRow
from turbo_hydra.measure.settings import MeasureSettingsError


class Writer(Protocol):
    """Takes finished rows in order."""

    def write(self, rows: Sequence[StepRow]) -> None:
        """Write the rows so that they survive the process."""

    def close(self) -> None:
        """Let go of the file."""


class JsonLines:
    """`steps.jsonl`, written anew: one object a line, whole lines only."""

    def __init__(self, folder: Path) -> None:
        self._file = (folder / FILE).open("w", encoding="utf-8")

    def write(self, rows: Sequence[StepRow]) -> None:
        """Write the rows."""
        self._file.write("".join(row.to_json() + "\n" for row in rows))
        self._file.flush()

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()


class Csv:
    """`steps.csv`: the same columns, losses of a step joined by spaces."""

    def __init__(self, folder: Path) -> None:
        self._file = (folder / "steps.csv").open("w", encoding="utf-8", newline="")
        self._writer = csv.writer(self._file)
        self._names = [field.name for field in dataclasses.fields(StepRow)]
        self._writer.writerow(self._names)

    def write(self, rows: Sequence[StepRow]) -> None:
        """Write the rows."""
        for row in rows:
            self._writer.writerow([_cell(getattr(row, name)) for name in self._names])
        self._file.flush()

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()


def _cell(value: object) -> str:
    if isinstance(value, list):
        return " ".join(str(item) for item in value)
    if isinstance(value, bool):
        return "1" if value else ""
    return "" if value is None else str(value)


class TensorBoard:
    """Event files in `tensorboard/`, one curve a column under `step/`."""

    def __init__(self, folder: Path) -> None:
        if importlib.util.find_spec("tensorboard") is None:
            raise MeasureSettingsError(
                "'measure.writers' asks for tensorboard, which is not installed; "
                "install the package 'tensorboard' or leave it out"
            )
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder / "tensorboard"))

    def write(self, rows: Sequence[StepRow]) -> None:
        """Write the rows."""
        for row in rows:
            for name, value in row.to_dict().items():
                if name not in ("step", "time") and isinstance(value, (int, float)):
                    self._writer.add_scalar(f"step/{name}", value, row.step, walltime=row.time)
        self._writer.flush()

    def close(self) -> None:
        """Let go of the file."""
        self._writer.close()


def open_writers(names: Sequence[str], folder: Path) -> list[Writer]:
    """The writer of `steps.jsonl` and those asked for.

    Raises
    ------
    MeasureSettingsError
        If one needs a package that is not installed.
    """
    kinds: dict[str, type[Csv] | type[TensorBoard]] = {"csv": Csv, "tensorboard": TensorBoard}
    folder.mkdir(parents=True, exist_ok=True)
    extra: list[Writer] = [kinds[name](folder) for name in names]
    return [JsonLines(folder), *extra]
