# SPDX-License-Identifier: Apache-2.0
"""A small project on disk, and scripts that call the API, each in a process of its own: it has one attempt."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

HEADER = "schema_version: turbo_hydra/optimization-config/v1\nkind: OptimizationConfig\n"
FUNCTION = "def {name}(x):\n    return ['original', x]\n"
NAMES = "fgh"
CATALOG = """
    from turbo_hydra import group, replace

    group("toy.f", replace("toy.lib.f", "toy_fast.f"))
    group("toy.g", replace("toy.lib.g", "toy_fast.g"), depends_on=("toy.f",))
    group("toy.h", replace("toy.lib.h", "toy_fast.h"))
"""
GROUPS = "groups: {toy: {f: true, g: true, h: false}}\n"
# What every script begins with: `show` prints the answer, `names` what an exception says of itself.
PRELUDE = """
import json, logging, os, sys
import turbo_hydra
from turbo_hydra import OptimizationConfigCatalog

def show(**values):
    print("ANSWER", json.dumps(values))

def caught(call):
    try:
        call()
    except Exception as error:
        return [type(error).__name__, str(error)]
    return None

catalog = OptimizationConfigCatalog(["configs"])
"""


@dataclass
class Project:
    """A model `toy`, its replacements, a catalog of groups, and configs in the folder `configs`."""

    folder: Path

    def write(self, name: str, text: str) -> Path:
        """Write a file below the project's folder."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def config(self, name: str, text: str = GROUPS, *, id: str = "") -> Path:
        """Write a config with the catalog and its evidence."""
        evidence = json.dumps(str(self.folder / "toy.evidence.json"))
        head = f"metadata: {{id: {id or name}}}\ncatalogs: [toy_catalog]\nevidence: {evidence}\n"
        return self.write(name, HEADER + head + text)

    def run(self, code: str, **environment: str) -> dict[str, Any]:
        """Run a script in the project's folder; what it showed."""
        done = self.process(code, **environment)
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout.rpartition("ANSWER")[2].splitlines()[0])
        return found

    def process(self, code: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a script in the project's folder."""
        script = self.write("script.py", PRELUDE + dedent(code))
        variables = {key: value for key, value in os.environ.items() if not key.startswith(("TURBO_HYDRA", "RANK"))}
        root = Path(__file__).resolve().parents[2]
        variables |= {"PYTHONPATH": os.pathsep.join([str(self.folder), str(root)]), **environment}
        command = [sys.executable, str(script)]
        return subprocess.run(
            command, cwd=self.folder, env=variables, capture_output=True, text=True, check=False, timeout=120
        )

    def line(self, text: str) -> int:
        """The line of the last script that begins with `text`."""
        lines = (self.folder / "script.py").read_text().splitlines()
        return next(number for number, line in enumerate(lines, 1) if line.startswith(text))


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = Project(tmp_path)
    made.write("toy/__init__.py", "")
    made.write("toy/lib.py", "".join(FUNCTION.format(name=name) for name in NAMES))
    made.write("toy_fast.py", "".join(FUNCTION.format(name=name).replace("original", "ours") for name in NAMES))
    made.write("toy_catalog.py", dedent(CATALOG))
    hashes = {name: hashlib.sha256(FUNCTION.format(name=name).encode()).hexdigest() for name in NAMES}
    evidence = {
        "schema_version": "turbo_hydra/evidence/v1",
        "provenance": {},
        "targets": {
            f"toy.lib.{name}": [
                {
                    "dist": None,
                    "version": None,
                    "source": f"source-v1:{digest}",
                    "ast": None,
                    "chain": [],
                    "file": "toy/lib.py",
                }
            ]
            for name, digest in hashes.items()
        },
        "replacements": {},
    }
    made.write("toy.evidence.json", json.dumps(evidence))
    made.config("configs/toy_model.yaml", id="model")
    made.config("configs/common.yaml", id="common")
    made.config("mine.yaml", id="mine")
    return made
