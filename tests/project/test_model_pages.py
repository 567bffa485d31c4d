# SPDX-License-Identifier: Apache-2.0
"""What docs/models says of models, groups and options is what the files and catalogs say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from turbo_hydra.config import OptimizationConfigCatalog, load_catalogs
from turbo_hydra.config.model_files import descriptions
from turbo_hydra.engine.declarations import Group

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "docs" / "models"
MODELS = sorted(path.stem for path in (ROOT / "conf" / "model").glob("*.yaml"))
# An option, and its default where the page gives it: `mode` or `mode` = `default`.
OPTION = re.compile(r"`(\w+)`(?: = `([^`]*)`)?")
# Models whose page has the name of their catalog.
PAGE = {"lerobot_pi05": "lerobot"}
# Pages of groups that serve the scripts of any model.
NO_MODEL = {"common", "transformers"}
LINK = re.compile(r"\]\(([^)#]+)")


def rows(page: Path) -> dict[str, dict[str, str]]:
    """Each table row that begins with a name in code style, by that name: the cells by their column's heading."""
    found: dict[str, dict[str, str]] = {}
    headings: list[str] = []
    for line in page.read_text(encoding="utf-8").splitlines():
        if not line.startswith("|"):
            headings = []
            continue
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        headings = headings or cells
        if line.startswith("| `") and headings[0] in ("group", "model"):
            assert len(cells) == len(headings), line
            found[cells[0].strip("`")] = dict(zip(headings, cells, strict=True))
    return found


def options(group: Group) -> dict[str, str]:
    """Names and defaults of a group's options, as a page writes them."""
    values = group.options() if group.options else None
    return {name: str(getattr(values, name)) for name in group.option_names}


def test_the_support_list_has_a_row_for_each_model() -> None:
    assert sorted(rows(PAGES / "README.md")) == MODELS
    told = {name: cells["what it is"] for name, cells in rows(PAGES / "README.md").items()}
    assert told == {name: text for name, text in descriptions().items() if name in MODELS}


def test_each_model_with_groups_has_a_page() -> None:
    with_groups = set(MODELS) & set(OptimizationConfigCatalog().names())
    assert {path.stem for path in PAGES.glob("*.md")} - NO_MODEL - {"README"} == {
        PAGE.get(model, model) for model in with_groups
    }


@pytest.mark.parametrize("page", sorted(PAGES.glob("*.md")), ids=lambda path: path.stem)
def test_links_of_the_pages_lead_somewhere(page: Path) -> None:
    links = [link for link in LINK.findall(page.read_text(encoding="utf-8")) if "://" not in link]
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("model", sorted(path.stem for path in PAGES.glob("*.md") if path.stem != "README"))
def test_a_page_tells_each_group_of_the_model_as_its_catalog_does(model: str) -> None:
    configs = OptimizationConfigCatalog()
    # Groups of the page that is no model's: those of the catalog `torch`.
    common = model == "common"
    name = {page: name for name, page in PAGE.items()}.get(model, model)
    config = configs.load(configs.common_path() if common else configs.model_path(name))
    declared = load_catalogs(config).groups
    told = rows(PAGES / f"{model}.md")
    own = {id for id in declared if id.startswith("torch." if common else f"{model}.")}
    assert own <= set(told) <= set(declared)
    for id, cells in told.items():
        about = declared[id].about
        assert about is not None
        assert cells["in the config"] == ("on" if config.groups.get(id) else "off"), id
        assert cells["numerics"] == about.numerics, id
        assert cells["memory"], id
        named = dict(OPTION.findall(cells["options"]))
        assert list(named) == list(options(declared[id])), id
        assert {name: value for name, value in named.items() if value}.items() <= options(declared[id]).items(), id
