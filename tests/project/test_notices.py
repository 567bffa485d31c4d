# SPDX-License-Identifier: Apache-2.0
"""THIRD_PARTY_NOTICES.md names files that exist, and for each what it follows, at which commit, under which licence."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LICENCES = {"Apache-2.0", "BSD-3-Clause", "MIT"}
COLUMNS = ["file", "follows", "project", "commit or version", "licence"]


def rows() -> list[dict[str, str]]:
    lines = (ROOT / "THIRD_PARTY_NOTICES.md").read_text(encoding="utf-8").splitlines()
    table = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    assert table[0] == COLUMNS
    return [dict(zip(COLUMNS, cells, strict=True)) for cells in table[2:]]


@pytest.mark.parametrize("row", rows(), ids=lambda row: row["file"].strip("`"))
def test_a_row_is_complete_and_its_file_exists(row: dict[str, str]) -> None:
    file = ROOT / row["file"].strip("`")
    assert file.is_file()
    assert re.search(r"`[\w.]+`", row["follows"]), "the functions that it follows"
    assert re.match(r"\[[^]]+\]\(https://\S+\)", row["project"]), "the project, with its address"
    assert re.fullmatch(r"[0-9a-f]{40}|\d+\.\d+(\.\d+)?", row["commit or version"])
    assert row["licence"] in LICENCES


@pytest.mark.parametrize("row", rows(), ids=lambda row: row["file"].strip("`"))
def test_the_functions_that_a_file_follows_are_in_it(row: dict[str, str]) -> None:
    text = (ROOT / row["file"].strip("`")).read_text(encoding="utf-8")
    for path in re.findall(r"`([\w.]+)`", row["follows"]):
        assert f"def {path.rpartition('.')[2]}(" in text, path


def test_files_are_named_once_and_in_order() -> None:
    names = [row["file"] for row in rows()]
    assert names == sorted(set(names))
