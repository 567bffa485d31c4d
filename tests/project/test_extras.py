# SPDX-License-Identifier: Apache-2.0
"""What is an extra may be absent: the rest works, and what needs it says so in one sentence."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXTRAS = ("torch", "numpy", "triton", "lightning", "matplotlib", "cloudpickle", "scipy")

# Python imports this module by itself at each start, so the processes that a command starts lack the packages too.
HIDE = """
import os
from importlib.machinery import PathFinder

HIDDEN = os.environ["HIDDEN_PACKAGES"].split(",")
find = PathFinder.find_spec

def find_spec(name, path=None, target=None):
    return None if name.partition(".")[0] in HIDDEN else find(name, path, target)

PathFinder.find_spec = find_spec
"""


def without(hidden: tuple[str, ...], command: list[str], cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a command of this environment's as if some packages were not installed."""
    hooks = cwd / "hooks"
    hooks.mkdir()
    (hooks / "sitecustomize.py").write_text(HIDE, encoding="utf-8")
    env = {**os.environ, "PYTHONPATH": str(hooks), "HIDDEN_PACKAGES": ",".join(hidden), "OMP_NUM_THREADS": "1"}
    start = [str(Path(sys.executable).with_name(command[0])), *command[1:]]
    return subprocess.run(start, cwd=cwd, env=env, capture_output=True, text=True, check=False)


def test_the_packages_are_really_hidden(tmp_path: Path) -> None:
    ran = without(("torch",), ["python", "-c", "import torch"], tmp_path)
    assert "ModuleNotFoundError: No module named 'torch'" in ran.stderr


def test_declaring_and_checking_need_no_extra(tmp_path: Path) -> None:
    code = (
        "import turbo_hydra\n"
        "from importlib.metadata import entry_points\n"
        "loaded = [turbo_hydra.Registry().load(found.value) for found in entry_points(group='turbo_hydra.catalogs')]\n"
        "assert all(loaded)\n"
    )
    ran = without(EXTRAS, ["python", "-c", code], tmp_path)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("shown", [["--cfg", "job"], ["--help"], ["--info", "plugins"]], ids=" ".join)
def test_composing_needs_no_extra(shown: list[str], tmp_path: Path) -> None:
    ran = without(EXTRAS, ["turbo-train", *shown], tmp_path)
    assert ran.returncode == 0, ran.stderr


def test_a_run_without_torch_says_so_in_one_sentence(tmp_path: Path) -> None:
    ran = without(("torch",), ["turbo-train"], tmp_path)
    assert ran.returncode == 2
    (sentence,) = [line for line in ran.stderr.splitlines() if line.startswith("turbo_hydra: ")]
    assert "turbo_hydra[torch]" in sentence
    assert "Traceback" not in ran.stdout + ran.stderr


def test_a_picture_without_matplotlib_is_one_sentence(tmp_path: Path) -> None:
    code = (
        "from pathlib import Path\n"
        "from turbo_hydra.sweep.picture import PictureError, draw\n"
        "try: draw({}, Path())\n"
        "except PictureError as error: print(error)\n"
    )
    ran = without(("matplotlib",), ["python", "-c", code], tmp_path)
    (sentence,) = ran.stdout.splitlines()
    assert "turbo_hydra[plot]" in sentence


@pytest.mark.slow
def test_a_run_needs_no_extra_but_torch(tmp_path: Path) -> None:
    hidden = ("triton", "lightning", "matplotlib", "cloudpickle", "scipy")
    ran = without(hidden, ["turbo-train", "model.args.steps=1", f"hydra.run.dir={tmp_path / 'run'}"], tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert (tmp_path / "run" / "turbo" / "report.json").exists()
