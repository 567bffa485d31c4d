# SPDX-License-Identifier: Apache-2.0
"""turbo-opt report for the folders of ablations."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from turbo_hydra.engine.errors import OptimizationConfigError
from turbo_hydra.sweep import files, tables


def are_sweeps(folders: Sequence[Path]) -> bool:
    """Whether these are folders of ablations.

    Raises
    ------
    OptimizationConfigError
        If some are and some are not.
    """
    found = [files.file_of(folder) for folder in folders]
    if all(path is None for path in found):
        return False
    other = next((folder for folder, path in zip(folders, found, strict=True) if path is None), None)
    if other is not None:
        raise OptimizationConfigError(f"{other} is no ablation (it has no ablation.json), and the others are")
    return True


def read(folders: Sequence[Path]) -> list[tuple[str, dict[str, Any]]]:
    """What each folder's `ablation.json` holds."""
    return [(str(folder), files.read(path)) for folder in folders if (path := files.file_of(folder)) is not None]


def show(found: Sequence[tuple[str, dict[str, Any]]]) -> list[str]:
    """Print one, and render its files anew, or several side by side; sentences on what could not be rendered."""
    if len(found) > 1:
        tables.side_by_side(found, sys.stdout)
        return []
    name, data = found[0]
    path = files.file_of(Path(name))
    said = []
    if path is not None:
        try:
            missing = files.render(path.parent, data)
            said += [missing] if missing else []
        except OSError as problem:
            said.append(f"{path.parent} cannot be written to: {problem.strerror}")
    tables.show(data, name, sys.stdout)
    return said
