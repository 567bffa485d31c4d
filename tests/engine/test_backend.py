# SPDX-License-Identifier: Apache-2.0
"""Which kind of device a process uses, and groups that were validated on some kinds only."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from turbo_hydra.engine import environment
from turbo_hydra.engine.backend import Backend, of_process

if TYPE_CHECKING:
    from tests.engine.conftest import Lab

# As the file of torch's wheels has them: with types since 1.x, without in those that vendors build.
BUILDS = {
    "cpu": "cuda: Optional[str] = None\nhip: Optional[str] = None\nxpu: Optional[str] = None\n",
    "cuda": "cuda: Optional[str] = '13.0'\nhip: Optional[str] = None\nxpu: Optional[str] = None\n",
    "hip": "cuda = None\nhip = '6.3.25211'\n",
    "xpu": "cuda: Optional[str] = None\nhip: Optional[str] = None\nxpu: Optional[str] = '20250301'\n",
    "silent": "debug = False\n",
    "broken": "cuda: Optional[str = None\n",
}


@pytest.fixture
def torch(tmp_path: Path) -> Path:
    """Make the folder of a package torch."""
    folder = tmp_path / "torch"
    folder.mkdir()
    return folder


def card(root: Path, kind: str) -> None:
    """Let the kernel's files tell of one device."""
    if kind == "cuda":
        folder = root / "proc/driver/nvidia/gpus/0000:17:00.0"
        name, text = "information", "Model: \t\t NVIDIA H200\nGPU UUID: \t GPU-8a3c\n"
    else:
        folder = root / "sys/class/kfd/kfd/topology/nodes/1"
        name, text = "properties", "simd_count 320\nlocation_id 5888\ndomain 0\n"
    folder.mkdir(parents=True)
    (folder / name).write_text(text)


@pytest.mark.parametrize(
    ("build", "device", "variables", "expected"),
    [
        ("cpu", None, {}, "cpu"),
        ("cpu", "cuda", {}, "cpu"),
        ("cuda", "cuda", {}, "cuda"),
        ("cuda", "cuda", {"CUDA_VISIBLE_DEVICES": "0"}, "cuda"),
        ("cuda", "cuda", {"CUDA_VISIBLE_DEVICES": ""}, "cpu"),
        ("cuda", "cuda", {"CUDA_VISIBLE_DEVICES": "-1"}, "cpu"),
        ("cuda", "cuda", {"HIP_VISIBLE_DEVICES": ""}, "cuda"),
        ("cuda", None, {}, "cpu"),
        ("cuda", "hip", {}, "cpu"),
        ("hip", "hip", {}, "hcu"),
        ("hip", "hip", {"HIP_VISIBLE_DEVICES": "1"}, "cpu"),
        ("hip", "cuda", {}, "cpu"),
        ("hip", None, {}, "cpu"),
    ],
)
def test_it_is_what_torch_is_built_for_where_such_a_device_is_visible(
    torch: Path, tmp_path: Path, build: str, device: str | None, variables: dict[str, str], expected: str
) -> None:
    (torch / "version.py").write_text(BUILDS[build])
    if device is not None:
        card(tmp_path, device)
    # What the launcher was told does not change what is seen.
    for accelerator in ("auto", "cuda", "cpu"):
        assert of_process(variables, accelerator, torch, tmp_path).name == expected


@pytest.mark.parametrize(
    ("build", "node", "reason"),
    [
        ("cuda", "nvidia0", "whether CUDA devices are visible cannot be read"),
        ("cuda", "dxg", "whether CUDA devices are visible cannot be read"),
        ("hip", "kfd", "whether HIP devices are visible cannot be read"),
        ("xpu", None, "torch is built for XPU"),
        ("silent", None, "torch is not installed, or does not say"),
        ("broken", None, "torch is not installed, or does not say"),
        (None, None, "torch is not installed, or does not say"),
    ],
)
def test_where_the_files_do_not_tell_the_launcher_s_word_is_taken(
    torch: Path, tmp_path: Path, build: str | None, node: str | None, reason: str
) -> None:
    if build is not None:
        (torch / "version.py").write_text(BUILDS[build])
    if node is not None:
        (tmp_path / "dev").mkdir()
        (tmp_path / "dev" / node).touch()
    found = of_process({}, "auto", torch, tmp_path)
    assert (found.name, reason in found.reason) == (None, True)
    for accelerator in ("cpu", "cuda", "hcu"):
        assert of_process({}, accelerator, torch, tmp_path).name == accelerator


@pytest.mark.parametrize(
    ("build", "variables", "hidden"),
    [
        ("cuda", {"CUDA_VISIBLE_DEVICES": ""}, True),
        ("cuda", {"HIP_VISIBLE_DEVICES": "", "ROCR_VISIBLE_DEVICES": ""}, False),
        ("hip", {"HIP_VISIBLE_DEVICES": " -1"}, True),
        ("hip", {"ROCR_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "0"}, True),
        # HIP reads CUDA's list where it has none of its own.
        ("hip", {"CUDA_VISIBLE_DEVICES": ""}, True),
        ("hip", {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "0"}, False),
    ],
)
def test_hidden_devices_are_none_even_where_the_kernel_s_files_do_not_tell(
    torch: Path, tmp_path: Path, build: str, variables: dict[str, str], hidden: bool
) -> None:
    (torch / "version.py").write_text(BUILDS[build])
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / {"cuda": "nvidia0", "hip": "kfd"}[build]).touch()
    assert of_process(variables, "auto", torch, tmp_path).name == ("cpu" if hidden else None)


def test_this_process_s_torch_is_found_without_loading_it() -> None:
    torch = pytest.importorskip("torch")
    code = (
        "import os, sys\nfrom turbo_hydra.engine.backend import of_process\n"
        "print(of_process(os.environ).name, 'torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""},
    )
    expected = None if torch.version.xpu else "cpu"
    assert done.stdout.split() == [str(expected), "False"]


@pytest.mark.parametrize("spec", ["absent", "without a spec"])
def test_a_torch_that_cannot_be_found_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, spec: str) -> None:
    if spec == "absent":
        monkeypatch.delitem(sys.modules, "torch", raising=False)
        monkeypatch.setattr(sys, "path", [str(tmp_path)])
        monkeypatch.setattr(sys, "meta_path", sys.meta_path[-1:])
    else:
        monkeypatch.setitem(sys.modules, "torch", type(sys)("torch"))
    assert of_process({}, "auto", None, tmp_path).name is None


# The check.


@pytest.fixture
def two(lab: Lab) -> Lab:
    lab.write("lib", "def f(x):\n    return 'original'\n\ndef g(x):\n    return 'original'\n")
    lab.write("new", "def f(x):\n    return 'ours'\n")
    lab.group("a", lab.replace("lib.f", "new.f"))
    lab.group("b", lab.replace("lib.g", "new.f"))
    return lab


def test_another_device_than_was_validated_blocks_every_group_and_is_forced_for_one(
    two: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "of_process", lambda *_: Backend("cpu", "torch is built for the CPU only"))
    made = two.plan(backends=("cuda", "hcu"), force=("a",))
    found = {id: (item.decision, item.reasons) for id, item in made.groups.items()}
    assert found == {"lab.a": ("apply", ["forced:backend"]), "lab.b": ("block", ["backend"])}
    (check,) = made.checks
    assert (check.code, check.status, check.expected, check.forceable) == ("backend", "fail", "cuda or hcu", True)
    assert check.actual == "cpu (torch is built for the CPU only)"
    assert check.message == f"compatibility.backends asks for cuda or hcu, found {check.actual}"


@pytest.mark.parametrize(
    ("name", "status", "decision"), [("cuda", "pass", "apply"), ("hcu", "fail", "block"), (None, "unknown", "apply")]
)
def test_the_report_says_which_device_it_is_and_only_another_one_blocks(
    two: Lab, monkeypatch: pytest.MonkeyPatch, name: str | None, status: str, decision: str
) -> None:
    monkeypatch.setattr(environment, "of_process", lambda *_: Backend(name, "a reason"))
    made = two.plan(backends=("cpu", "cuda"))
    assert [(check.status, "a reason" in check.actual) for check in made.checks] == [(status, True)]
    assert two.decision("a") == decision
    assert made.to_execution().environment["backend"] == name


def test_the_check_is_asked_with_the_process_s_variables_and_the_launcher_s_word(
    two: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    def of_process(variables: object, accelerator: str) -> Backend:
        asked.extend((variables, accelerator))
        return Backend(None, "")

    monkeypatch.setattr(environment, "of_process", of_process)
    two.plan(accelerator="hcu")
    assert asked == [os.environ, "hcu"]


def test_a_config_that_names_no_device_is_not_checked(two: Lab) -> None:
    assert two.plan().checks == []
