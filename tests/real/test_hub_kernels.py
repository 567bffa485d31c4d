# SPDX-License-Identifier: Apache-2.0
"""Hugging Face's package `kernels` beside the groups: what it changes is blocked or told, with its file and line."""

from __future__ import annotations

import functools
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

pytestmark = [pytest.mark.real, pytest.mark.timeout(3600)]
PROGRAM = Path(__file__).with_name("transformers_program.py")
LAYERS = Path(__file__).with_name("kernel_layers") / "layers.py"
KINDS = ("rms_norm", "mlp", "rotary", "loss")
NORMS, LAYERS_OF_MODEL = 5, 2
Run = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def run(environment: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Run:
    """One step of a small Llama, with groups and layers in some order; of equal runs the first is kept."""
    python = environment("transformers_kernels")

    @functools.cache
    def made(order: str, *, groups: bool = True, enabled: bool = True) -> dict[str, Any]:
        answer = tmp_path_factory.mktemp("kernels") / "answer.json"
        task = {"answer": str(answer), "order": order}
        done = subprocess.run(
            [
                *(str(python), str(PROGRAM), "hub_kernels"),
                json.dumps({**task, "apply": {"only": ["transformers.llama_*"]}} if groups else task),
            ],
            env={
                **os.environ,
                **{"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONSAFEPATH": "1"},
                "USE_HUB_KERNELS": "YES" if enabled else "NO",
            },
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-4000:]
        found: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
        return {**found, "step": torch.load(answer.with_suffix(".pt"))["llama float32"]}

    return made


@pytest.fixture(scope="module")
def plain(run: Run) -> dict[str, Any]:
    """The step of the library alone, and not kernelized."""
    step: dict[str, Any] = run("never", groups=False)["step"]
    return step


def same(step: dict[str, Any], plain: dict[str, Any]) -> None:
    """Loss and gradients are equal up to the order of sums."""
    assert step.keys() == plain.keys()
    size = max(float(item.abs().max()) for name, item in plain.items() if name != "logits")
    for name in plain.keys() - {"logits"}:
        assert float((step[name] - plain[name]).abs().max()) <= 2e-5 * size, name


def statuses(found: dict[str, Any]) -> dict[str, str]:
    named = {entry["group"].partition(".llama_")[2]: entry["status"] for entry in found["report"]["execution"]}
    return {kind: named[kind] for kind in KINDS}


def hits(found: dict[str, Any], kind: str) -> list[int]:
    """Calls of the replacement and of the original."""
    (entry,) = [item for item in found["report"]["execution"] if item["group"] == f"transformers.llama_{kind}"]
    return [entry["members"][0]["hits"][name] for name in ("replacement", "original")]


def checks(found: dict[str, Any], kind: str, status: str) -> list[dict[str, Any]]:
    return [
        check
        for check in found["report"]["prepared_execution"]["checks"]
        if check["group"] == f"transformers.llama_{kind}" and check["status"] == status
    ]


def line_of(text: str) -> int:
    """The line of the repository's layers that holds a text."""
    return next(number for number, line in enumerate(LAYERS.read_text().splitlines(), 1) if text in line)


@pytest.mark.parametrize("order", ["never", "before", "after"])
def test_the_function_that_kernels_made_an_object_of_is_blocked_with_its_file(
    run: Run, plain: dict[str, Any], order: str
) -> None:
    found = run(order)
    same(found["step"], plain)
    status = statuses(found)
    assert status["rotary"] == ("blocked" if order == "before" else "rolled_back")
    assert [status[kind] for kind in ("rms_norm", "mlp", "loss")] == ["applied"] * 3
    (check,) = [item for item in checks(found, "rotary", "fail") if item["code"] == "evidence.unreadable"]
    assert "kernels.layer.func" in check["message"]
    assert "kernels/layer/func.py:" in check["place"].replace(os.sep, "/")
    assert check["place"] in found["markdown"]
    assert (hits(found, "mlp"), hits(found, "loss")) == ([0, LAYERS_OF_MODEL], [1, 0])
    if order == "never":
        assert found["calls"] == {}
        assert (hits(found, "rms_norm"), checks(found, "rms_norm", "warning")) == ([0, NORMS], [])
    else:
        assert found["calls"] == {"norm": NORMS, "rotary": LAYERS_OF_MODEL}
        assert hits(found, "rms_norm") == [0, 0]


def test_layers_that_kernels_gave_a_model_after_us_are_told_with_file_and_line(run: Run) -> None:
    found = run("after")
    (check,) = checks(found, "rms_norm", "warning")
    assert (check["code"], check["actual"]) == ("instances.own_attribute", f"{NORMS} instances")
    assert "Norm.forward" in check["message"]
    assert f"{LAYERS}:{line_of('def forward(self, hidden_states')}" in check["message"]
    assert check["message"] in found["markdown"]


def test_layers_that_kernels_gave_a_model_before_us_are_told(run: Run) -> None:
    (check,) = [
        item for item in checks(run("before"), "rms_norm", "warning") if item["code"] == "instances.own_attribute"
    ]
    assert check["actual"] == f"{NORMS} instances"
    assert "LlamaRMSNorm" in check["message"]


def test_a_model_for_which_kernels_has_no_layers_has_ours(run: Run, plain: dict[str, Any]) -> None:
    found = run("after, and there are none")
    same(found["step"], plain)
    assert found["calls"] == {}
    assert (hits(found, "rms_norm"), checks(found, "rms_norm", "warning")) == ([0, NORMS], [])


def test_with_hub_kernels_switched_off_all_groups_are_applied(run: Run, plain: dict[str, Any]) -> None:
    found = run("never", enabled=False)
    same(found["step"], plain)
    assert statuses(found) == dict.fromkeys(KINDS, "applied")
    assert hits(found, "rotary") == [0, LAYERS_OF_MODEL]
