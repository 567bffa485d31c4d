# SPDX-License-Identifier: Apache-2.0
"""The benchmark of encoder and decoder runs, on the small model, and its figures are whole."""

from __future__ import annotations

import importlib
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

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


@pytest.mark.parametrize(
    ("row", "groups"),
    [
        ("none", set()),
        ("again", set()),
        ("operator", set()),
        ("bevformer.msda", {"bevformer.msda", "mmcv.msda"}),
        ("-mmcv.msda", {"bevformer.sca"}),
        ("-bevformer.sca", {"bevformer.msda", "mmcv.msda"}),
        ("+bevformer.conv_tf32", {"bevformer.msda", "mmcv.msda", "bevformer.sca", "bevformer.conv_tf32"}),
    ],
)
def test_a_row_has_its_groups_and_what_they_depend_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, row: str, groups: set[str]
) -> None:
    # The suite runs with PYTHONSAFEPATH, which keeps the current folder, and with it the benchmarks, off the path.
    monkeypatch.syspath_prepend(str(ROOT))
    config_of = importlib.import_module("benchmarks.bevformer_worker").config_of
    base = tmp_path / "base.yaml"
    of = {"mmcv": {"msda": True}, "bevformer": {"msda": True, "sca": True, "conv_tf32": False}}
    base.write_text(yaml.safe_dump({**yaml.safe_load(CONFIG), "groups": of}), encoding="utf-8")
    file, _ = config_of(row, str(base), tmp_path)
    written = yaml.safe_load(file.read_text(encoding="utf-8"))["groups"]
    assert {f"{catalog}.{name}" for catalog, names in written.items() for name, on in names.items() if on} == groups


@pytest.mark.slow
def test_rows_take_turns_and_compute_alike(tmp_path: Path) -> None:
    config, out = tmp_path / "small.yaml", tmp_path / "out.json"
    config.write_text(CONFIG, encoding="utf-8")
    rows = ["again", "all", "bevformer.sca", "-bevformer.sca", "+bevformer.conv_tf32"]
    asked = [rows[0], "no such group", *rows[1:]]
    command = [sys.executable, "-m", "benchmarks.bevformer", "--config", str(config), "--rounds", "2"]
    command += ["--repo", str(ROOT / "tests" / "bevformer" / "repository"), "--json", str(out)]
    command += ["--builder", "tests.bevformer.parts:parts", "--whole", "--anew", "--", *asked]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, check=False)
    assert done.returncode == 1, done.stderr[-3000:]
    found = json.loads(out.read_text(encoding="utf-8"))
    # One row has failed; the others are there.
    assert found["failed"].keys() == {"no such group"}
    assert "bevformer.sca" in found["failed"]["no such group"]
    assert list(found["rows"]) == ["none", *rows]
    for row, figures in found["rows"].items():
        assert all(value > 0 for value in figures["ms"].values())
        assert all(low <= value <= high for value, low, high in figures["times_as_fast"].values())
        assert figures["distance"] < 1e-4, row
        assert len(figures["turns"]) == 2
        assert all(value > 0 for value in figures["memory"].values())
        assert not any(math.isnan(value) for value in figures["ms"].values())
    plain, fast = found["rows"]["none"], found["rows"]["all"]
    assert found["rows"]["again"]["distance"] == 0
    assert plain["applied"] == {}
    assert fast["distance"] > 0
    # The indices of the queries that a camera sees are read once, not once a camera and layer; all costs at once.
    for part in ("encoder", "history", "loss"):
        assert fast["trace"][part]["reads"] < plain["trace"][part]["reads"]
    assert set(found["rows"]["bevformer.sca"]["applied"]) == {"bevformer.sca"}
    assert "bevformer.sca" not in found["rows"]["-bevformer.sca"]["applied"]
    assert set(found["rows"]["+bevformer.conv_tf32"]["applied"]) == {
        *found["rows"]["all"]["applied"],
        "bevformer.conv_tf32",
    }
    assert "| encoder | history | decoder | loss | whole | step |" in done.stdout
