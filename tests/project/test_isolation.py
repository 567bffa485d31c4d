# SPDX-License-Identifier: Apache-2.0
"""A test leaves the process as it found it, in whatever order tests run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TWO = """
import os

def test_first():
    from torch._inductor.runtime.cache_dir_utils import cache_dir
    os.environ["SET_BY_A_TEST"] = "x"
    del os.environ["OF_THE_CALLER"]
    cache_dir()
    assert "TORCHINDUCTOR_CACHE_DIR" in os.environ

def test_second():
    assert "SET_BY_A_TEST" not in os.environ
    assert "TORCHINDUCTOR_CACHE_DIR" not in os.environ
    assert os.environ["OF_THE_CALLER"] == "y"
"""


def test_variables_set_during_a_test_end_with_it(tmp_path: Path, project_root: Path) -> None:
    (tmp_path / "test_two.py").write_text(TWO)
    environment = {key: value for key, value in os.environ.items() if key != "TORCHINDUCTOR_CACHE_DIR"}
    environment |= {"OF_THE_CALLER": "y", "PYTHONPATH": str(project_root)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", "-p", "no:randomly", "test_two.py"]
    ran = subprocess.run(command, cwd=tmp_path, env=environment, text=True, capture_output=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "2 passed" in ran.stdout
