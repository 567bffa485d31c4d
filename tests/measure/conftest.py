# SPDX-License-Identifier: Apache-2.0
"""A meter around a piece of training code, with the catalog's observers in place."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from turbo_hydra.measure import catalog
from turbo_hydra.measure.meter import Meter, install
from turbo_hydra.measure.rows import StepRow, read_rows

Measured = Callable[..., AbstractContextManager["Metered"]]


class Metered:
    """What a test looks at after the code ran."""

    def __init__(self, meter: Meter, folder: Path) -> None:
        self.meter = meter
        self.folder = folder

    @property
    def rows(self) -> list[StepRow]:
        return read_rows(self.folder / "steps.jsonl")


def _locate(path: str) -> tuple[Any, str, Any]:
    parts = path.split(".")
    for length in range(len(parts) - 1, 0, -1):
        try:
            owner: Any = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for part in parts[length:-1]:
            owner = getattr(owner, part)
        return owner, parts[-1], getattr(owner, parts[-1])
    raise AssertionError(path)


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Measured:
    """Return a context manager: `with measured(settings, model) as metered:`.

    Each member of the catalog is put where it says, as the engine does with it in a run of its own (test_end_to_end).
    """
    monkeypatch.delenv("RANK", raising=False)
    for member in catalog.STEPS.members:
        factory = _locate(member.replacement)[2]
        original = _locate(member.target)[2]
        wrapped = factory(original, None)
        for path in member.paths:
            owner, name, _ = _locate(path)
            monkeypatch.setattr(owner, name, wrapped)

    @contextmanager
    def run(settings: dict[str, Any] | None = None, model: dict[str, Any] | None = None) -> Iterator[Metered]:
        folder = tmp_path / f"rank{len(os.listdir(tmp_path))}"
        meter = install({"interval": 0, "progress": "off", **(settings or {})}, model or {}, folder)
        assert meter is not None
        try:
            yield Metered(meter, folder)
        finally:
            meter.close()

    return run
