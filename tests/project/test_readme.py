# SPDX-License-Identifier: Apache-2.0
"""README's commands do what they say, typed as they stand."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).resolve().parents[2] / "README.md"
# Those who have HCU cards read it.
CHINESE = README.with_suffix(".zh.md")
# The suite that this test belongs to is not started again inside itself.
OWN_SUITE = {"make test", "make test-all"}


def blocks(kind: str, text: str) -> list[str]:
    """Return the blocks marked with a language."""
    return re.findall(rf"^```{kind}\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)


def commands(text: str) -> list[str]:
    """Return the command lines of the blocks marked `bash`."""
    lines = [line.strip() for block in blocks("bash", text) for line in block.splitlines()]
    return [line for line in lines if line and not line.startswith("#")]


COMMANDS = commands(README.read_text(encoding="utf-8"))


def test_readme_has_the_two_commands() -> None:
    assert {"make train", "make test"} <= set(COMMANDS)


def test_each_target_that_readme_names_exists(project_root: Path) -> None:
    targets = set(
        re.findall(r"^([a-z-]+):", (project_root / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    )
    named = set(re.findall(r"\bmake ([a-z-]+)", README.read_text(encoding="utf-8")))
    assert named - targets == set()


@pytest.mark.parametrize("readme", [README, CHINESE])
def test_each_file_that_readme_links_to_exists(readme: Path, project_root: Path) -> None:
    linked = re.findall(r"\]\(([^)#:]+)\)", readme.read_text(encoding="utf-8"))
    assert [name for name in linked if not (project_root / name).exists()] == []


def test_the_chinese_readme_has_the_same_commands_code_and_figures() -> None:
    english, chinese = (path.read_text(encoding="utf-8") for path in (README, CHINESE))
    assert commands(chinese) == commands(english)
    for kind in ("console", "python"):
        assert blocks(kind, chinese) == blocks(kind, english)
    # Rows of the ablation: a group's name, then numbers and verdicts.
    rows = re.compile(r"^\| (?:\w+\.\w+|all \(again\)) \|.*$", flags=re.MULTILINE)
    assert rows.findall(chinese) == rows.findall(english) != []
    # Of the first table of the page, which is what was measured: the numbers, in whatever order a language has them.
    tables = [text[text.index("\n| ") : text.index("\n## ")].splitlines() for text in (english, chinese)]
    first = [[sorted(re.findall(r"\d+(?:\.\d+)?", line)) for line in table] for table in tables]
    assert first[0] == first[1] != []


@pytest.mark.parametrize("block", blocks("python", README.read_text(encoding="utf-8")))
def test_the_python_works(block: str, project_root: Path, tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(project_root / "examples" / "tiny_vla")}
    ran = subprocess.run(
        [sys.executable, "-c", block], env=env, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert ("'blocked': 0, 'failed': 0" in ran.stdout) == ("print(report.summary)" in block)
    told = [json.loads(path.read_text("utf-8")) for path in tmp_path.rglob("turbo/report.json")]
    assert [(report["summary"]["blocked"], report["steps"]["count"] > 0) for report in told] == [(0, True)] * len(told)
    assert bool(told) == ("integrations.lightning" in block)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("command", [command for command in COMMANDS if command not in OWN_SUITE])
def test_the_command_works(command: str, project_root: Path) -> None:
    """Run one command from the project's root with the console scripts on the path, as after activating .venv."""
    # What a surrounding `make test-all ARGS=...` hands on is not meant for the commands.
    ours = ("PYTHON", "PYTEST", "MAKE", "MFLAGS", "ARGS")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    ran = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command],
        cwd=project_root,
        env={**kept, "PATH": path, "OMP_NUM_THREADS": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
