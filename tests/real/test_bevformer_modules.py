# SPDX-License-Identifier: Apache-2.0
"""BEVFormer's own modules at real size, on a CPU: each group is reached, and computes what upstream's code computes.

The checkout is the one that BEVFORMER_REPO names.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.real, pytest.mark.timeout(3600)]

ROOT = Path(__file__).resolve().parents[2]
# Of float32, relative to the largest number of a tensor.
CLOSE = 1e-4
EXACT = ("bevformer.decoder_attention", "bevformer.assigner")
# What encoder, decoder and loss call on a CPU.
REACHED = {"mmcv.msda", "bevformer.sca", "bevformer.tsa", "bevformer.geometry", *EXACT}

OTHERS = """
import sys
sys.path.insert(0, sys.argv[1])
import numpy as np
import turbo_hydra
turbo_hydra.apply(model="bevformer", force_groups=[])
import torch
from mmcv.ops import ModulatedDeformConv2dPack
from projects.mmdet3d_plugin.models.utils.grid_mask import GridMask

torch.set_num_threads(1)
torch.manual_seed(0)
# A mask of the same draws, for which upstream's own code (beside what keeps it on the CPU) runs.
mask = GridMask(True, True, rotate=1, offset=False, ratio=0.5, mode=1, prob=0.7).train()
images = torch.randn(2, 3, 48, 80)
ours, theirs = GridMask.forward, GridMask.forward.__wrapped__
for seed in range(8):
    results = []
    for forward in (ours, theirs):
        np.random.seed(seed)
        results.append((forward(mask, images), np.random.rand()))
    assert torch.equal(results[0][0], results[1][0]) and results[0][1] == results[1][1]
# DCNv2 begins with offsets of zero and masks of one half.
layer = ModulatedDeformConv2dPack(8, 6, 3, stride=2, padding=1, bias=False, deform_groups=2)
x = torch.randn(2, 8, 9, 11, requires_grad=True)
output = layer(x)
expected = 0.5 * torch.nn.functional.conv2d(x, layer.weight, None, 2, 1)
torch.testing.assert_close(output, expected)
output.square().sum().backward()
assert layer.conv_offset.weight.grad.abs().sum() > 0 and x.grad is not None
# On a device mmdet calls mmcv's operator; on a CPU a path of its own, which must agree.
from mmcv.ops import sigmoid_focal_loss
from mmdet.models.losses.focal_loss import py_sigmoid_focal_loss
scores, target = torch.randn(40, 10, requires_grad=True), torch.randint(0, 11, (40,))
wanted = torch.nn.functional.one_hot(target, 11)[:, :10]
weights = torch.randn(40, 10)
results = []
for losses in (
    sigmoid_focal_loss(scores, target, 2.0, 0.25, None, "none"),
    py_sigmoid_focal_loss(scores, wanted, gamma=2.0, alpha=0.25, reduction="none"),
):
    results.append((losses, *torch.autograd.grad((losses * weights).sum(), scores)))
torch.testing.assert_close(*results)
print("held")
"""


@pytest.fixture(scope="module")
def run(environment: Callable[[str], Path]) -> Callable[..., str]:
    """Run the environment's Python from here; gives what it prints."""
    if not os.environ.get("BEVFORMER_REPO"):
        pytest.skip("BEVFORMER_REPO names no checkout of BEVFormer")

    def run(*command: str) -> str:
        done = subprocess.run(
            [str(environment("bevformer")), "-W", "ignore", *command],
            cwd=ROOT,
            # The benchmark is found from here, which `make test-real` keeps off the path.
            env={**os.environ, "PYTHONSAFEPATH": "", "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    return run


def test_encoder_decoder_and_loss_compute_as_upstream(run: Callable[..., str], tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    rows = ["all", *EXACT]
    run(
        "-m",
        "benchmarks.bevformer",
        "--repo",
        os.environ["BEVFORMER_REPO"],
        "--rounds",
        "2",
        "--brief",
        "--json",
        str(out),
        *rows,
    )
    found: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))["rows"]
    assert found["all"]["distance"] < CLOSE
    assert {row: found[row]["distance"] for row in EXACT} == dict.fromkeys(EXACT, 0.0)
    applied = found["all"]["applied"]
    assert {id for id, entry in applied.items() if any(entry["hits"])} == REACHED
    assert {id for id, entry in applied.items() if any(entry["reasons"])} == set()


def test_grid_mask_deformable_convolution_and_focal_loss_are_upstreams(run: Callable[..., str]) -> None:
    assert run("-c", OTHERS, os.environ["BEVFORMER_REPO"]).strip().endswith("held")
