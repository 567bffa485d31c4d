# SPDX-License-Identifier: Apache-2.0
"""An optimization project of the user's own, written from the example that ships."""

from __future__ import annotations

import keyword
import os
import re
import subprocess
import sys
from pathlib import Path

from turbo_hydra.engine.errors import OptimizationConfigError

EXAMPLE = Path(__file__).absolute().parent.parent / "examples" / "optimization_project"
EXAMPLE_NAME = "my_optimizations"
_LICENCE = "# SPDX-License-Identifier:"
_LEFT_OUT = ("__pycache__", ".pytest_cache")


def write_project(name: str, folder: Path) -> Path:
    """Write the project into a folder that is new or empty, and generate its config; returns the folder.

    Raises
    ------
    OptimizationConfigError
        If the name is none for a package, is taken, or the folder has content.
    """
    _check_name(name)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise OptimizationConfigError(f"{folder} is there and not empty; name another with --folder")
    for file in sorted(EXAMPLE.rglob("*")):
        if file.is_file() and not any(part in _LEFT_OUT or part.endswith(".egg-info") for part in file.parts):
            target = folder / str(file.relative_to(EXAMPLE)).replace(EXAMPLE_NAME, name)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(_text(file, name), encoding="utf-8")
    _generate(name, folder)
    return folder


def _check_name(name: str) -> None:
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        raise OptimizationConfigError(f"a project's name is that of its package: a-z, 0-9 and _, found '{name}'")
    # An import of the name must lead to the project, in its tests and in its users' runs.
    if name in sys.stdlib_module_names or name in ("torch", "hydra", "turbo_hydra", "hydra_plugins", "tests"):
        raise OptimizationConfigError(f"'{name}' is the name of another package; choose one of your own")


def _text(file: Path, name: str) -> str:
    # What licence the project is under its author says.
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    kept = [line for number, line in enumerate(lines) if number > 1 or not line.startswith(_LICENCE)]
    return "".join(kept).replace(EXAMPLE_NAME, name)


def _generate(name: str, folder: Path) -> None:
    """Generate the config with the command that the project's README tells, before anything is installed."""
    conf = folder / "src" / name / "conf" / "optimization"
    inherited = filter(None, [os.environ.get("PYTHONPATH")])
    own = Path(__file__).absolute().parent.parent.parent
    path = os.pathsep.join([str(folder.absolute() / "src"), *inherited, str(own)])
    done = subprocess.run(
        [
            *(sys.executable, "-m", "turbo_hydra.cli.opt", "generate", "--static"),
            *("--recipe", str(conf / "recipe" / f"{name}.yaml"), "--repo", f"pkg://{name}/sample"),
            *("--output", str(conf / f"{name}.yaml")),
        ],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        said = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise OptimizationConfigError(f"{folder} is written, and its config cannot be generated: {said}")
