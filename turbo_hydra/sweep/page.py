# SPDX-License-Identifier: Apache-2.0
"""The verdicts of a sweep in a page that people read: the text between two marks is replaced, the rest stays."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from turbo_hydra.launch import files
from turbo_hydra.sweep import tables

BEGIN, END = "<!-- ablation: begin -->", "<!-- ablation: end -->"


def write(page: Path, data: Mapping[str, Any]) -> str:
    """Put the sweep's verdicts and rows into a page.

    Parameters
    ----------
    page : Path
        A Markdown file with the two marks, each on a line of its own.
    data : mapping
        What `ablation.json` holds.

    Returns
    -------
    str
        What was done, or why nothing was; the results are in the sweep's own folder in any case.
    """
    try:
        text = page.read_text(encoding="utf-8")
    except (OSError, ValueError) as problem:
        return f"ablation.page: {page} cannot be read ({problem}), so the tables are in the sweep's folder only"
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        return f"ablation.page: {page} has no lines '{BEGIN}' and '{END}', so the tables are in the sweep's folder only"
    try:
        files.write_text(page, f"{before}{BEGIN}\n{tables.section(data)}\n{END}{after}")
    except OSError as problem:
        return f"ablation.page: {page} cannot be written: {problem.strerror or problem}"
    return f"the tables are in {page}"
