# SPDX-License-Identifier: Apache-2.0
"""Where no kernel can run, one sentence says why, every stem can be imported, and the plain path runs."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
import torch

from turbo_hydra.kernels import STEMS, usable


def test_this_process_can_use_them() -> None:
    assert usable.unusable() is None


def test_too_old_says_what_is_wanted_and_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usable, "OLDEST", {"torch": "2.6", "triton": "99"})
    expected = f"kernels need triton 99 or newer, found {metadata.version('triton')}"
    assert usable.unusable(device=False) == expected


ABSENT = """
import sys
class Nothing:
    def find_spec(self, name, path=None, target=None):
        if name == "triton" or name.startswith("triton."):
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)
sys.meta_path.insert(0, Nothing())
import importlib, importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if name == "triton" else found(name, *more)
import torch
from turbo_hydra.kernels import STEMS, unusable
print(unusable())
for stem in STEMS:
    if found("turbo_hydra.kernels." + stem) is not None:
        importlib.import_module("turbo_hydra.kernels." + stem)
from turbo_hydra.kernels.geglu import geglu, unfit
x = torch.ones(2, 3)
print(unfit(x, x))
print(torch.equal(geglu(x, x), torch.nn.functional.gelu(x, approximate="tanh")))
"""


def test_without_triton_the_stems_import_and_take_the_plain_path(tmp_path: Path, project_root: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", ABSENT], cwd=tmp_path, env={"PYTHONPATH": str(project_root), "PATH": "/usr/bin:/bin"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == [
        "kernels need triton 3.2 or newer, and triton is not installed",
        "no kernel for tensors on cpu",
        "True",
    ]


@pytest.mark.slow
def test_without_a_device_the_sentence_says_so(tmp_path: Path, project_root: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a device")
    code = "import sys; from turbo_hydra.kernels import unusable; print('torch' in sys.modules, unusable())"
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env={"PYTHONPATH": str(project_root), "PATH": "/usr/bin:/bin"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.stdout.strip() == "False kernels need an NVIDIA, AMD or HCU device, and torch sees none", ran.stderr


def test_there_is_a_module_for_each_stem_that_is_named(project_root: Path) -> None:
    missing = [stem for stem in STEMS if not (project_root / "kernels" / f"{stem}.py").exists()]
    assert missing == []
