# SPDX-License-Identifier: Apache-2.0
"""The generated config fits the sample, and a run applies its groups."""

import json
import subprocess
import sys
from pathlib import Path

import my_optimizations

CONFIG = Path(my_optimizations.__file__).parent / "conf" / "optimization" / "my_optimizations.yaml"


def run(module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", module, *arguments], capture_output=True, text=True, check=False)


def test_the_config_is_valid_and_fits_the_sample() -> None:
    done = run("turbo_hydra.cli.opt", "check", str(CONFIG), "--repo", "pkg://my_optimizations/sample", "--static")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "replacement.changed" not in done.stdout, "generate the config anew: the replacements were edited since"


def test_a_run_applies_the_groups_and_reaches_them(tmp_path: Path) -> None:
    done = run("turbo_hydra.cli.train", "model=my_optimizations", "model.args.steps=3", f"hydra.run.dir={tmp_path}")
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((tmp_path / "turbo" / "report.json").read_text(encoding="utf-8"))
    assert report["summary"]["applied"] == 2, report["execution"]
    entries = [entry for entry in report["execution"] if entry["group"].startswith("my_optimizations.")]
    for member in (member for entry in entries for member in entry["members"]):
        assert member["hits"]["replacement"] > 0, member
