# SPDX-License-Identifier: Apache-2.0
"""The commands of examples/openpi/README.md are those that the programs take; the steps are all there."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import pytest
import yaml
from typer.main import get_command

from tests.openpi_use.conftest import Train
from turbo_hydra.cli.opt import app

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "openpi"
TEXT = (EXAMPLE / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```bash\n(.*?)```", TEXT, re.DOTALL)
COMMANDS = [line for block in BLOCKS for line in block.splitlines()]
LINKS = [link for link in re.findall(r"\]\(([^)#]+)", TEXT) if "://" not in link]


def words(line: str) -> list[str]:
    return shlex.split(os.path.expandvars(line))


@pytest.mark.parametrize("line", [line for line in COMMANDS if line.startswith("turbo-train model=")])
def test_a_command_composes_and_sets_no_argument_that_it_does_not_show(
    train: Train, tmp_path: Path, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENPI_DATA_HOME", "/data")
    shown = train(*words(line)[1:], "--cfg", "job", "--resolve", OPENPI_REPO=str(tmp_path))
    assert shown.returncode == 0, shown.stderr
    composed = yaml.safe_load(shown.stdout)
    said = {word.partition("=")[0].removeprefix("model.args.") for word in words(line) if "model.args." in word}
    assert set(composed["model"]["args"]) == said
    assert composed["model"]["repo"] == str(tmp_path)


def test_the_command_for_another_commit_is_one_line_with_options_that_there_are() -> None:
    (line,) = [line for line in COMMANDS if line.startswith("turbo-opt")]
    assert "--commit 215abfb217dbac7d5f1273282331b9b1866c0479" in line
    commands = get_command(app).commands  # type: ignore[attr-defined]
    known = {option for parameter in commands["generate"].params for option in parameter.opts}
    assert set(re.findall(r"--[a-z]+", line)) <= known
    recipe = re.search(r"\)(/\S+\.yaml)", line)
    assert recipe is not None
    assert (EXAMPLE.parents[1] / "turbo_hydra" / recipe[1].lstrip("/")).is_file()


def test_each_step_of_the_table_has_a_section() -> None:
    steps = re.findall(r"^\| (\d) \| ([^|]+) \| [^|]+ \| [^|]+ \|$", TEXT, re.MULTILINE)
    titles = re.findall(r"^## (\d)\. (.+)$", TEXT, re.MULTILINE)
    assert [number for number, _ in steps] == [number for number, _ in titles]
    for (_, step), (_, title) in zip(steps, titles, strict=True):
        assert title.lower().startswith(step.strip().split()[0]), (step, title)


@pytest.mark.parametrize("link", LINKS)
def test_a_link_leads_somewhere(link: str) -> None:
    assert (EXAMPLE / link).exists()


def test_files_that_the_commands_name_are_there() -> None:
    named = {word for line in COMMANDS for word in line.split() if re.fullmatch(r"[a-z_]+\.(py|txt)", word)}
    assert {"requirements.txt", "download_weights.py"} <= named
    assert [name for name in named if not (EXAMPLE / name).is_file()] == []


def test_neither_step_downloads_anything_over_plain_http() -> None:
    sources = [path.read_text(encoding="utf-8") for path in EXAMPLE.rglob("*.*") if path.suffix in (".py", ".md")]
    assert not [line for text in sources for line in text.splitlines() if "http://" in line]
