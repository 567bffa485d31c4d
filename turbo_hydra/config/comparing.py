# SPDX-License-Identifier: Apache-2.0
"""Showing a config with its evidence, and what differs between two."""

from __future__ import annotations

import difflib
import json
from pathlib import Path
from typing import Any

from turbo_hydra.config.evidence_file import Evidence
from turbo_hydra.config.schema import OptimizationConfig


def shown(config: OptimizationConfig) -> dict[str, Any]:
    """The resolved config as plain JSON data, with its evidence in place of the file's name.

    No path of the machine is in it, so that two copies of one config show the same.
    """
    evidence = Evidence.union(Evidence.read(path) for path in config.evidence)
    data = config.to_dict()
    data["evidence"] = json.loads(evidence.to_text())
    return data


def shown_text(config: OptimizationConfig) -> str:
    """`shown` as indented JSON."""
    return json.dumps(shown(config), indent=2, ensure_ascii=False) + "\n"


def difference(old: OptimizationConfig, new: OptimizationConfig, old_name: str | Path, new_name: str | Path) -> str:
    """A unified diff of two shown configs; empty where they are equal."""
    lines = [shown_text(item).splitlines(keepends=True) for item in (old, new)]
    return "".join(difflib.unified_diff(lines[0], lines[1], str(old_name), str(new_name)))
