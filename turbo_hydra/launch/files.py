# SPDX-License-Identifier: Apache-2.0
"""Reading and writing the small files of a run; a reader never sees half of one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from turbo_hydra.engine.report import write_text_atomic


def write_text(path: Path, text: str) -> None:
    """Write a file atomically, with the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text_atomic(path, text)


def write_json(path: Path, data: Any) -> None:
    """Write plain data atomically. ASCII, since paths of a file system need not be valid text."""
    write_text(path, json.dumps(data, indent=1, default=str) + "\n")


def read_json(path: Path) -> Any:
    """Read a JSON file; None where there is none or it cannot be read."""
    try:
        return json.loads(path.read_text(encoding="utf-8", errors="replace"))
    except (OSError, ValueError):
        return None
