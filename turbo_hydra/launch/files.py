# SPDX-License-Identifier: Apache-2.0
"""Reading and writing the small JSON files of a run; a reader never sees half of one."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any


def write_text(path: Path, text: str) -> None:
    """Write a file atomically: beside it, then renamed. What a killed process leaves is the old file or the new."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
        os.chmod(name, 0o666 & ~_umask())
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def write_json(path: Path, data: Any) -> None:
    """Write plain data atomically."""
    write_text(path, json.dumps(data, indent=1, default=str) + "\n")


def read_json(path: Path) -> Any:
    """Read a JSON file; None where there is none or it cannot be read."""
    try:
        return json.loads(path.read_text(encoding="utf-8", errors="replace"))
    except (OSError, ValueError):
        return None


def _umask() -> int:
    # Linux shows it without the set-and-set-back that races with other threads.
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("Umask:"):
            return int(line.split()[1], 8)
    return 0o077
