# SPDX-License-Identifier: Apache-2.0
"""The how-to for optimization developers, typed as it stands, in a folder and an environment of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "optimization-config.md"
COMMANDS = {
    "turbo-opt": "turbo_hydra.cli.opt",
    "turbo-train": "turbo_hydra.cli.train",
    "pip": "pip",
    "pytest": "pytest",
}


def blocks() -> list[str]:
    return re.findall(r"^```bash\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


@pytest.fixture
def environment(tmp_path: Path, project_root: Path) -> dict[str, str]:
    """Return variables in which the page's commands are those of a new virtual environment over this one."""
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    packages = next((venv / "lib").glob("python*")) / "site-packages"
    places = [str(project_root), *(item for item in sys.path if item.endswith("site-packages"))]
    (packages / "over.pth").write_text("\n".join(places), encoding="utf-8")
    # A script, as pip installs it: unlike -m it does not put the working folder on the import path.
    script = venv / "command.py"
    script.write_text(
        "import runpy, sys\nrunpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)\n", "utf-8"
    )
    for command, module in COMMANDS.items():
        file = venv / "bin" / command
        file.write_text(f'#!/bin/sh\nexec "{venv}/bin/python" "{script}" {module} "$@"\n', encoding="utf-8")
        file.chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST", "PIP"))}
    return {
        **kept,
        "PATH": f"{venv / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "OMP_NUM_THREADS": "1",
        # Nothing is fetched: what building needs is in this environment.
        "PIP_NO_BUILD_ISOLATION": "0",
        "PIP_NO_DEPS": "1",
        "PIP_NO_INDEX": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_page_works_from_its_first_command_to_its_last(tmp_path: Path, environment: dict[str, str]) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    said = ""
    for block in blocks():
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", block],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, block + done.stdout + done.stderr
        said += done.stdout
    for wanted in (
        "applied=2 skipped=0 blocked=0",
        "net.yaml: 1 groups, 1 evidence records",
        "net.yaml: valid, 1 groups",
        "matches: 1 match",
        "applied=1 skipped=2 blocked=0",
        "does not match: 1 changed",
        "sum in double precision",
        "+    rows = [x[..., max(0, i + 1 - width) : i + 1].double().mean(-1) for i in range(x.shape[-1])]",
    ):
        assert wanted in said, wanted
    assert len(list((folder / "dist").glob("fast_things-*.whl"))) == 1
