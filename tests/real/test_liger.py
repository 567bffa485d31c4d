# SPDX-License-Identifier: Apache-2.0
"""Liger-Kernel patches the same model: what is its own is blocked or lost, with its name, file and line."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.real, pytest.mark.timeout(3600)]
PROGRAM = Path(__file__).with_name("transformers_program.py")
GEMMA = {"only": ["transformers.gemma_*"]}
KINDS = ("rms_norm", "mlp", "rotary", "loss")
# What of Liger's stands at the target, and in which of its files.
THEIRS = {
    "rms_norm": ("LigerRMSNormForGemma", "rms_norm.py"),
    "mlp": ("LigerGEGLUMLP", "geglu.py"),
    "rotary": ("liger_rotary_pos_emb", "rope.py"),
    "loss": ("lce_forward", "gemma.py"),
}


@pytest.fixture(scope="module", params=["transformers_453", "transformers_5x"])
def liger(
    request: pytest.FixtureRequest, environment: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], dict[str, Any]]:
    """Let Liger patch Gemma before the groups come in or after, and return the reports."""
    python = environment(request.param)

    def run(order: str) -> dict[str, Any]:
        answer = tmp_path_factory.mktemp("liger") / "answer.json"
        done = subprocess.run(
            [str(python), str(PROGRAM), "liger", json.dumps({"answer": str(answer), "order": order, "apply": GEMMA})],
            env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONSAFEPATH": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-4000:]
        found: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
        return found

    return run


def entries(report: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The groups of a report that are on, without the catalog's name."""
    named = {entry["group"].partition(".gemma_")[2]: entry for entry in report["execution"]}
    return {kind: named[kind] for kind in KINDS}


def failures(report: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The first failed check of each group."""
    checks = [check for check in report["prepared_execution"]["checks"] if check["status"] == "fail"]
    return {check["group"].partition(".gemma_")[2]: check for check in reversed(checks)}


def test_after_liger_our_groups_are_blocked_with_its_file_and_line(liger: Callable[[str], dict[str, Any]]) -> None:
    found = liger("before")
    assert {kind: entry["status"] for kind, entry in entries(found["last"]).items()} == dict.fromkeys(KINDS, "blocked")
    told = failures(found["last"])
    for kind, (name, file) in THEIRS.items():
        assert "liger_kernel" in told[kind]["place"], kind
        assert f"{file}:" in told[kind]["place"], kind
        assert told[kind]["place"] in told[kind]["message"], kind
        assert told[kind]["place"] in found["markdown"], kind
        if kind in ("rms_norm", "mlp"):
            assert name in told[kind]["message"], kind


@pytest.mark.parametrize("order", ["after the model", "after the groups"])
def test_liger_after_us_takes_the_sites_and_the_report_says_so(
    liger: Callable[[str], dict[str, Any]], order: str
) -> None:
    found = liger(order)
    there = "applied" if order == "after the model" else "not_started"
    assert {kind: entry["status"] for kind, entry in entries(found["applied"]).items()} == dict.fromkeys(KINDS, there)
    for kind, entry in entries(found["last"]).items():
        name, file = THEIRS[kind]
        assert entry["status"] == "failed", kind
        assert name in entry["error"], kind
        assert f"{file}:" in entry["error"], kind
        assert entry["error"].endswith("place since"), kind


def test_an_instance_that_liger_has_patched_is_told(liger: Callable[[str], dict[str, Any]]) -> None:
    report = liger("instance")["last"]
    warned = [
        check["target"].split(".")[-2]
        for check in report["prepared_execution"]["checks"]
        if check["code"] == "instances.own_attribute"
    ]
    # Liger also puts its classes into the module: those groups are blocked.
    assert "GemmaForCausalLM" in warned
    assert {kind: entry["status"] for kind, entry in entries(report).items()} == {
        "rms_norm": "blocked",
        "mlp": "blocked",
        "rotary": "blocked",
        "loss": "applied",
    }
