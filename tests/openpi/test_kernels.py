# SPDX-License-Identifier: Apache-2.0
"""The groups with kernels train as the plain model also where the kernels run: here in Triton's interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.openpi.test_groups import KERNELS

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import sys, torch
sys.path.insert(0, {root!r})
import tests.kernels.interpreting  # mends the interpreter
from tests.openpi import small
from turbo_hydra.engine.objects import load_object

said = []
for member in small.groups()[{id!r}].members:
    load_object(member.replacement)
    sys.modules[member.replacement.rpartition(".")[0]].fallback = said.append
torch.set_num_threads(1)
with small.repository():
    for pi05 in (True, False):
        pi0, data = small.model(pi05=pi05), small.batch(2, cameras=(True, False, True), prompts=(5, 7))
        expected = small.step(pi0, data)
        with small.applied({{{id!r}: {{}}}}):
            small.same(small.step(pi0, data), expected, 2e-5)
print("fell back", sorted(set(said)))
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("id", KERNELS)
def test_a_group_with_a_kernel_trains_as_the_plain_model(id: str) -> None:
    pytest.importorskip("triton", reason="kernels need triton, and it is not installed")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(root=str(ROOT), id=id)],
        env={**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip() == "fell back []"
