# SPDX-License-Identifier: Apache-2.0
"""Results on disk, one folder a run: what a killed sweep leaves, the next one finds."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from turbo_hydra.launch import files
from turbo_hydra.sweep import basis as bases
from turbo_hydra.sweep import result as results
from turbo_hydra.sweep.result import Result
from turbo_hydra.sweep.rows import Row
from turbo_hydra.sweep.settings import AblationError

RUNS = "rows"
RESULT = "result.json"
STARTED = "started.json"
BASIS = "basis.json"


class Store:
    """The results of one sweep's folder that belong to one basis.

    Parameters
    ----------
    folder : Path
        The sweep's.
    basis : mapping
        What all results of this sweep have in common.
    loss_steps : int
        How many first losses a result keeps.
    """

    def __init__(self, folder: Path, basis: Mapping[str, Any], loss_steps: int) -> None:
        self.folder = folder
        self.basis = dict(basis)
        self.key = bases.key(basis)
        self._loss_steps = loss_steps
        self.results: dict[tuple[str, int], Result] = {}
        self.found = 0

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other sweeps out of the folder; the lock goes with the process, however that ends.

        Raises
        ------
        AblationError
            If another sweep is running in it.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self.folder / ".lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise AblationError(
                f"another sweep is running in {self.folder}; wait for it, or choose a folder by hydra.sweep.dir"
            ) from None
        try:
            files.write_json(self.folder / BASIS, self.basis)
            yield
        finally:
            lock.release()

    def run_folder(self, row: Row, number: int) -> Path:
        """Where the run of a row in a round is."""
        return self.folder / RUNS / bases.row_key(row, self.key) / str(number)

    def load(self, rows: Sequence[Row], rounds: int) -> None:
        """Take what earlier sweeps finished; what they had only begun is run again.

        Raises
        ------
        AblationError
            If a result was obtained elsewhere than the others.
        """
        for row in rows:
            for number in range(rounds):
                found = self._read(row, number)
                if found is not None:
                    self._add(row, number, found)
                    self.found += 1

    def _read(self, row: Row, number: int) -> Result | None:
        folder = self.run_folder(row, number)
        data = files.read_json(folder / RESULT)
        if isinstance(data, dict) and data.get("schema_version") == results.SCHEMA_VERSION:
            return Result.from_dict(data)
        # The run ended and the sweep was killed before it said so.
        started = files.read_json(folder / STARTED)
        if not isinstance(started, dict):
            return None
        report = folder / "turbo" / "report.json"
        ended = report.stat().st_mtime if report.is_file() else started["began"]
        found = results.read(folder, max(0.0, ended - started["began"]), started["began"], self._loss_steps)
        # Whoever ended the sweep by a signal ended this run with it; that is nothing about the row.
        if found is None or ("SIGTERM" in found.reason or "SIGINT" in found.reason or "SIGHUP" in found.reason):
            return None
        self._write(row, number, found)
        return found

    def begin(self, row: Row, number: int, began: float) -> Path:
        """Make the folder of a run that is about to start."""
        folder = self.run_folder(row, number)
        (folder / "turbo" / "report.json").unlink(missing_ok=True)
        files.write_json(folder / STARTED, {"began": began, "row": row.name, "on": row.on, "round": number})
        return folder

    def put(self, row: Row, number: int, result: Result) -> None:
        """Keep the result of a run.

        Raises
        ------
        AblationError
            If it was obtained elsewhere than the others.
        """
        self._write(row, number, result)
        self._add(row, number, result)

    def _write(self, row: Row, number: int, result: Result) -> None:
        files.write_text(self.run_folder(row, number) / RESULT, json.dumps(result.to_dict(), indent=1) + "\n")

    def _add(self, row: Row, number: int, result: Result) -> None:
        known = next((other.facts for other in self.results.values() if other.facts and result.facts), None)
        if known is not None and known != result.facts:
            changed = ", ".join(bases.differences(known, result.facts))
            raise AblationError(
                f"the run of '{row.name}' in {self.run_folder(row, number)} ran elsewhere than the others ({changed} "
                "differ); results of both cannot be compared: choose another folder by hydra.sweep.dir"
            )
        self.results[row.name, number] = result

    def has(self, row: Row, number: int) -> bool:
        """Whether the run is done."""
        return (row.name, number) in self.results
