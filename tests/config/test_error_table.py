# SPDX-License-Identifier: Apache-2.0
"""What generate refuses of a composition: each case of the source document's table, with its whole message."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.config.conftest import Project

CODE = """
def attend(query, key):
    return key @ query

def faster(query, key):
    return attend(query, key)

def other(query, key):
    return query
"""


@dataclass(frozen=True)
class Case:
    """A catalog, what the recipe selects of it, and what is said; `{}` stands for the catalog's file."""

    catalog: str
    groups: str
    said: str


CASES = {
    "one target, the same replacement": Case(
        """
        group("table.one", replace("demo_model.layers.attend", "table_code.attend"))
        group("table.two", replace("demo_model.attend", "table_code.attend"))
        """,
        "one: on, two: on",
        "group 'table.one' ({}:3) and group 'table.two' ({}:4): both declare 'demo_model.attend', the same change; "
        "keep one of the two",
    ),
    "one target, different replacements": Case(
        """
        group("table.one", replace("demo_model.layers.attend", "table_code.attend"))
        group("table.two", wrap("demo_model.layers.attend", "table_code.other"))
        """,
        "one: on, two: on",
        "group 'table.one' ({}:3) and group 'table.two' ({}:4): both declare 'demo_model.layers.attend', different "
        "changes; keep one of the two",
    ),
    "a dependency that is off": Case(
        """
        group("table.one", replace("demo_model.layers.attend", "table_code.attend"))
        group("table.two", replace("demo_model.layers.Block.norm", "table_code.attend"), depends_on=("table.one",))
        """,
        "one: off, two: on",
        "{}:4: group 'table.two' is on and depends on 'table.one', which is off; switch both on or off",
    ),
    "a dependency that nobody declares": Case(
        """
        group("table.two", replace("demo_model.layers.Block.norm", "table_code.attend"), depends_on=("table.ome",))
        group("table.one", replace("demo_model.layers.attend", "table_code.attend"))
        """,
        "two: on",
        "{}:3: group 'table.two' depends on 'table.ome', which no catalog of the recipe declares; did you mean "
        "'table.one'?",
    ),
    "dependencies in a circle": Case(
        """
        group("table.one", replace("demo_model.layers.attend", "table_code.attend"), depends_on=("table.two",))
        group("table.two", replace("demo_model.layers.Block.norm", "table_code.attend"), depends_on=("table.one",))
        """,
        "one: on",
        "these groups depend on one another in a circle: table.one, table.two",
    ),
    "a replacement that uses another group's": Case(
        """
        group("table.one", replace("demo_model.layers.attend", "table_code.attend"))
        group("table.two", replace("demo_model.layers.late_name", "table_code.faster"))
        """,
        "one: on, two: on",
        "table_code.py:6: the replacement of group 'table.two' uses 'table_code.attend', that of group 'table.one'; "
        "call its target 'demo_model.layers.attend'",
    ),
    "a class and a method of it": Case(
        """
        group("table.one", replace("demo_model.layers.Block", "table_code.attend"))
        group("table.two", replace("demo_model.layers.Block.norm", "table_code.other"))
        """,
        "one: on, two: on",
        "group 'table.one' ({}:3) and group 'table.two' ({}:4): the first replaces the class that the second changes",
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_case_is_refused_with_its_message(project: Project, tmp_path: Path, case: Case) -> None:
    catalog = tmp_path / "catalog" / "table_catalog.py"
    catalog.parent.mkdir()
    declared = "\n".join(line.strip() for line in case.catalog.strip().splitlines())
    catalog.write_text(f"from turbo_hydra import group, replace, wrap\n\n{declared}\n", encoding="utf-8")
    catalog.with_name("table_code.py").write_text(CODE, encoding="utf-8")
    project.recipe.write_text(
        "schema_version: turbo_hydra/recipe/v1\nkind: OptimizationRecipe\nmodel: {name: demo}\n"
        f"catalogs: [table_catalog]\ngroups: {{table: {{{case.groups}}}}}\n",
        encoding="utf-8",
    )
    # In a process of its own: a group is declared once a process, and each case declares the same names.
    done = subprocess.run(
        [
            *(sys.executable, "-m", "turbo_hydra.cli.opt", "generate", "--static", "--recipe", str(project.recipe)),
            *("--repo", str(project.repo), "--commit", project.commit, "--output", str(project.output)),
        ],
        env={"PYTHONPATH": f"{catalog.parent}:{Path(__file__).resolve().parents[2]}", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    (sentence,) = done.stderr.splitlines()
    assert sentence == "turbo-opt: " + case.said.replace("{}", str(catalog))
    assert not project.output.exists()


def test_the_page_for_developers_tells_each_case() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "optimization-config.md").read_text(encoding="utf-8")
    table = page[page.index("## What generate refuses") :]
    for words in (
        "the same change",
        "different changes",
        "one that is off",
        "no catalog declares",
        "in turn",
        "another group's",
    ):
        assert re.search(words, table), words
