# SPDX-License-Identifier: Apache-2.0
"""The files of a finished or unfinished sweep: `ablation.json` and what is rendered from it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from turbo_hydra.engine.errors import OptimizationConfigError
from turbo_hydra.launch import files
from turbo_hydra.sweep import picture, tables
from turbo_hydra.sweep.outcome import FILE, SCHEMA_VERSION


def write(folder: Path, data: Mapping[str, Any], drawn: bool = True) -> str | None:
    """Write `ablation.json`, `.md` and `.csv`, and the picture.

    Returns
    -------
    str or None
        Why there is no picture.
    """
    files.write_text(folder / FILE, json.dumps(data, indent=1, default=str, allow_nan=False) + "\n")
    return render(folder, data, drawn)


def render(folder: Path, data: Mapping[str, Any], drawn: bool = True) -> str | None:
    """Write what is rendered from `ablation.json`."""
    made: list[Path] = []
    missing = None
    if drawn:
        try:
            made = picture.draw(data, folder)
        except picture.PictureError as problem:
            missing = str(problem)
    files.write_text(folder / "ablation.md", tables.markdown(data, made[0].name if made else None))
    files.write_text(folder / "ablation.csv", tables.comma_separated(data))
    return missing


def file_of(path: Path) -> Path | None:
    """The `ablation.json` that a path means, None if it is no sweep's."""
    if path.name == FILE and path.is_file():
        return path
    return path / FILE if (path / FILE).is_file() else None


def read(path: Path) -> dict[str, Any]:
    """Read an `ablation.json`.

    Raises
    ------
    OptimizationConfigError
        If it cannot be read or is none.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as problem:
        raise OptimizationConfigError(f"{path} cannot be read: {problem}") from problem
    found = data.get("schema_version") if isinstance(data, dict) else None
    if found != SCHEMA_VERSION:
        raise OptimizationConfigError(f"{path} is no report of a sweep: its schema_version is {found!r}")
    return dict(data)
