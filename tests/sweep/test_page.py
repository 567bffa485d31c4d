# SPDX-License-Identifier: Apache-2.0
"""`ablation.page`: the tables of a sweep between two marks of a page."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sweep.test_output import data
from turbo_hydra.sweep import page, tables
from turbo_hydra.sweep.settings import AblationError, AblationSettings

MARKED = f"# Groups\n\nbefore\n\n{page.BEGIN}\nwhat stood there\n{page.END}\n\nafter {page.END}\n"


def test_the_text_between_the_marks_gives_way_and_the_rest_stays(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text(MARKED, encoding="utf-8")
    assert page.write(path, data()) == f"the tables are in {path}"
    text = path.read_text(encoding="utf-8")
    before, _, rest = text.partition(page.BEGIN)
    inner, _, after = rest.partition(page.END)
    assert (before, after) == ("# Groups\n\nbefore\n\n", f"\n\nafter {page.END}\n")
    assert "what stood there" not in inner
    for verdict in tables.verdicts(data()):
        assert "| " + " | ".join(verdict) + " |" in inner
    names, lines = tables.rows(data())
    for line in (names, *lines):
        assert "| " + " | ".join(line) + " |" in inner
    assert "torch 2.13.0" in inner
    page.write(path, data())
    assert path.read_text(encoding="utf-8") == text, "again, the same"


def test_it_is_a_part_of_what_the_sweep_writes_for_itself() -> None:
    whole = tables.markdown(data()).splitlines()
    assert [line for line in tables.section(data()).splitlines()[1:] if line not in whole] == []


@pytest.mark.parametrize("text", ["", "no marks", page.BEGIN, page.END, f"{page.END} {page.BEGIN}"])
def test_a_page_without_the_marks_is_not_touched(tmp_path: Path, text: str) -> None:
    path = tmp_path / "page.md"
    path.write_text(text, encoding="utf-8")
    assert "has no lines" in page.write(path, data())
    assert path.read_text(encoding="utf-8") == text


def test_a_page_that_is_not_there_is_told_and_not_made(tmp_path: Path) -> None:
    assert "cannot be read" in page.write(tmp_path / "none.md", data())
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("value", ["", 1, ["a.md"], True])
def test_what_is_no_name_of_a_file_is_refused(value: object) -> None:
    with pytest.raises(AblationError, match=r"'ablation\.page' must be the name of a Markdown file"):
        AblationSettings.from_mapping({"page": value})
