# SPDX-License-Identifier: Apache-2.0
"""What holds for each file of the project, whoever wrote it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

SPDX = "# SPDX-License-Identifier: Apache-2.0"
SOURCE_NAMES = ("Makefile", "run")
SOURCE_SUFFIXES = (".py", ".pyi", ".sh", ".toml", ".yaml", ".yml")


def tracked(root: Path) -> list[Path]:
    """Return the files that git tracks, without the links (what they lead to is listed under its own name)."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, check=True, capture_output=True, text=True).stdout
    paths = [root / name for name in listed.split("\0") if name]
    return [path for path in paths if path.is_file() and not path.is_symlink()]


def test_each_source_file_names_its_licence_first(project_root: Path) -> None:
    missing = []
    for path in tracked(project_root):
        if path.suffix not in SOURCE_SUFFIXES and path.name not in SOURCE_NAMES:
            continue
        lines = path.read_text(encoding="utf-8").splitlines() or [""]
        # Hydra reads a file's package from its first line only.
        first = lines[1:2] if lines[0].startswith(("#!", "# @package ")) else lines[:1]
        if first != [SPDX]:
            missing.append(str(path.relative_to(project_root)))
    assert missing == []


def test_no_file_names_a_folder_of_the_machine_it_was_written_on(project_root: Path) -> None:
    machine = re.compile("|".join(re.escape(f"{folder}/") for folder in (project_root, Path.home())))
    found = []
    for path in tracked(project_root):
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        found += [f"{path.relative_to(project_root)}: {hit.group()}" for hit in machine.finditer(text)]
    assert found == []


def test_the_links_that_packaging_rests_on_are_relative(project_root: Path) -> None:
    package = project_root / "turbo_hydra"
    targets = {name: (package / name).readlink().as_posix() for name in ("conf", "kernels", "examples")}
    assert targets == {"conf": "../conf", "kernels": "../kernels", "examples": "../examples"}


def test_the_plugin_namespace_stays_open_to_other_packages(project_root: Path) -> None:
    assert not (project_root / "hydra_plugins" / "__init__.py").exists()


def lint(root: Path, name: str, source: str) -> subprocess.CompletedProcess[str]:
    """Lint a text as if it were the named file of the project."""
    command = [sys.executable, "-m", "ruff", "check", "--output-format=concise", "--stdin-filename", name, "-"]
    return subprocess.run(command, cwd=root, input=source, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("name", "statement", "code"),
    [
        ("turbo_hydra/catalogs/models/x.py", "assert len(__name__)", "S101"),
        ("kernels/x.py", "assert len(__name__)", "S101"),
        ("turbo_hydra/engine/x.py", "print(__name__)", "T201"),
        ("turbo_hydra/cli/x.py", "# x = 1", "ERA001"),
    ],
)
def test_the_linter_refuses_what_may_not_ship(project_root: Path, name: str, statement: str, code: str) -> None:
    ran = lint(project_root, name, f'"""A module."""\n\n{statement}\n')
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert [line.split()[1] for line in ran.stdout.splitlines() if line.startswith(name)] == [code]


def test_the_linter_lets_the_engine_assert_what_cannot_happen(project_root: Path) -> None:
    ran = lint(project_root, "turbo_hydra/engine/x.py", '"""A module."""\n\nassert len(__name__)\n')
    assert ran.returncode == 0, ran.stdout + ran.stderr
