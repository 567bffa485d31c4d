# SPDX-License-Identifier: Apache-2.0
"""A package that registers fakes for its compiled operators, beside a torch that cannot load them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

# As torchvision's: it goes on without its compiled part, and then registers a fake unconditionally.
PACKAGE = """
import torch
from pathlib import Path
try:
    torch.ops.load_library(str(next(Path(__file__).parent.glob("_C*"))))
except (OSError, StopIteration):
    pass
@torch.library.register_fake("torchvision::nms")
def nms(dets, scores, threshold):
    return dets
"""
RUN = """
import sys
from turbo_hydra.catalogs.shared import torchvision_schemas
from turbo_hydra.compatibility import ImportContext
from turbo_hydra.engine.imports import Rule, finder
context = ImportContext("torchvision", None, None)
if sys.argv[1] == "with":
    finder.add(Rule("torchvision", before=[lambda _: torchvision_schemas.declare(context)]))
import torchvision
import torch
print(len(torchvision_schemas._kept), hasattr(torch.ops.torchvision, "qnms"))
torch.ops.torchvision.nms(torch.ones(1, 4), torch.ones(1), 0.5)
"""


def run(folder: Path, how: str) -> subprocess.CompletedProcess[str]:
    package = folder / "torchvision"
    package.mkdir(exist_ok=True)
    (package / "__init__.py").write_text(PACKAGE)
    return subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(folder)!r})\n{RUN}", how],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("compiled", [pytest.param("absent", marks=pytest.mark.slow), "does not load"])
def test_its_operators_are_declared_and_calling_one_is_torchs_error(tmp_path: Path, compiled: str) -> None:
    if compiled != "absent":
        (tmp_path / "torchvision").mkdir()
        (tmp_path / "torchvision" / "_C.so").write_bytes(b"made for another torch")
    plain = run(tmp_path, "without")
    assert "torchvision::nms does not exist" in plain.stderr
    helped = run(tmp_path, "with")
    assert helped.stdout.strip() == "1 True", helped.stderr
    assert "torchvision::nms" in helped.stderr
    assert helped.returncode == 1
