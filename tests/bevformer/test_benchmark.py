# SPDX-License-Identifier: Apache-2.0
"""The benchmark of encoder and decoder runs, on the small model, and its figures are whole."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CONFIG = """
schema_version: turbo_hydra/optimization-config/v1
kind: OptimizationConfig
metadata: {id: small, version: 1.0.0, description: the small model's groups}
catalogs: [turbo_hydra.catalogs.mmcv, turbo_hydra.catalogs.models.bevformer]
force: ["*"]
groups:
  mmcv: {msda: true}
  bevformer: {sca: true, tsa: true, geometry: true, assigner: true, conv_tf32: false}
"""


@pytest.mark.slow
def test_rows_take_turns_and_compute_alike(tmp_path: Path) -> None:
    config, out = tmp_path / "small.yaml", tmp_path / "out.json"
    config.write_text(CONFIG, encoding="utf-8")
    rows = ["all", "bevformer.sca", "-bevformer.sca", "+bevformer.conv_tf32"]
    command = [sys.executable, "-m", "benchmarks.bevformer", "--config", str(config), "--rounds", "3"]
    command += ["--repo", str(ROOT / "tests" / "bevformer" / "repository"), "--json", str(out)]
    command += ["--builder", "tests.bevformer.parts:parts", "--", *rows]
    # The suite runs with PYTHONSAFEPATH, which keeps the current folder off the path.
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(out.read_text(encoding="utf-8"))
    assert list(found["rows"]) == ["none", *rows]
    for row, figures in found["rows"].items():
        assert all(value > 0 for value in figures["ms"].values())
        assert all(low <= value <= high for value, low, high in figures["times_as_fast"].values())
        assert figures["distance"] < 1e-4, row
        assert not any(math.isnan(value) for value in figures["ms"].values())
    assert found["rows"]["none"]["applied"] == {}
    assert set(found["rows"]["bevformer.sca"]["applied"]) == {"bevformer.sca"}
    assert "bevformer.sca" not in found["rows"]["-bevformer.sca"]["applied"]
    assert set(found["rows"]["+bevformer.conv_tf32"]["applied"]) == {
        *found["rows"]["all"]["applied"],
        "bevformer.conv_tf32",
    }
    assert "| encoder | history | decoder | loss | step |" in done.stdout
