# SPDX-License-Identifier: Apache-2.0
"""Ranges of groups in a trace: there while a profiler runs, and only in runs that asked for one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from turbo_hydra.engine.around import set_around, surrounded
from turbo_hydra.measure.ranges import ranged


def test_a_call_is_a_range_while_a_profiler_runs() -> None:
    call = ranged("a.b pkg.f", lambda x, *, factor: x * factor)
    x = torch.ones(2)
    assert torch.equal(call(x, factor=3), x * 3)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        call(x, factor=3)
    (found,) = [event for event in profile.events() if event.name == "a.b pkg.f"]
    assert any(child.name == "aten::mul" for child in found.cpu_children)


def test_nothing_is_put_around_a_replacement_unless_asked() -> None:
    assert surrounded("a.b pkg.f", len) is None
    set_around(lambda label, function: lambda value: (label, function(value)))
    try:
        call = surrounded("a.b pkg.f", len)
        assert call is not None
        assert call("four") == ("a.b pkg.f", 4)
    finally:
        set_around(None)


@pytest.mark.slow
def test_the_trace_of_a_run_has_a_range_for_each_group(tmp_path: Path, project_root: Path) -> None:
    words = ["model.args.steps=6", "model.args.batch-size=2", "model.extra=[--no-eval]", "measure.profile=2"]
    command = [sys.executable, "-m", "turbo_hydra.cli.train", f"hydra.run.dir={tmp_path}", *words]
    done = subprocess.run(command, cwd=project_root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    trace = json.loads((tmp_path / "turbo" / "ranks" / "0" / "trace.json").read_text(encoding="utf-8"))
    names = {str(event.get("name")) for event in trace["traceEvents"]}
    for group in ("checkpoint_off", "fused_attention", "rope_once", "last_prefix"):
        assert any(name.startswith(f"tiny_vla.{group} ") for name in names), group
