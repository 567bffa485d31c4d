# SPDX-License-Identifier: Apache-2.0
"""Through the engine: every group is applied, reached, and taken back; what guards say is tallied."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]

PROGRAM = """
import dataclasses, json, sys
sys.path[:0] = [{root!r}, {repository!r}]
import torch
torch.set_num_threads(1)
import turbo_hydra
from turbo_hydra.engine.apply import Engine
from turbo_hydra.engine import plan
from turbo_hydra.engine.selection import Selection
from tests.bevformer import small

ids = small.groups()
registry = turbo_hydra.Registry()
for catalog in small.CATALOGS:
    registry.load(catalog)
chosen = [id for id in registry.groups if id in ids and "compile" not in id]
selection = Selection(groups={{id: id in chosen for id in registry.groups}}, force=("*",))
engine = Engine(plan.prepare(registry, selection), run_id="r", describe={{}})
report = engine.apply()
net = small.model()
optimizer = torch.optim.AdamW(net.parameters())
for number in range(2):
    small.step(net, small.batch(2, boxes=(2, 0), seed=number))
    optimizer.step()
from mmdet3d.datasets.pipelines.loading import LoadMultiViewImageFromFiles
from projects.mmdet3d_plugin.datasets.builder import build_dataloader
LoadMultiViewImageFromFiles(to_float32=True)({{"img_filename": ["a", "b"]}})
build_dataloader([{{"img": torch.zeros(2), "img_metas": 1}}], 1, 1)
print(json.dumps(engine.report.to_dict(), default=str))
"""


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    repository = Path(__file__).resolve().parent / "repository"
    code = PROGRAM.format(root=str(ROOT), repository=str(repository))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    data: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return data


def test_every_group_is_applied(report: dict[str, Any]) -> None:
    others = {entry["group"]: entry["status"] for entry in report["execution"] if entry["status"] != "applied"}
    assert {id: status for id, status in others.items() if "compat" not in id and "compile" not in id} == {}


CONVOLUTION = "mmcv.dcn_kernel mmcv.ops.modulated_deform_conv.ModulatedDeformConv2dFunction"
ATTENTION = "mmcv.attention mmcv.cnn.bricks.transformer.MultiheadAttention.forward"
# What only a device, several ranks, or a model without dropout reaches.
UNREACHED = {
    "bevformer.msda projects.mmdet3d_plugin.bevformer.modules.multi_scale_deformable_attn_function"
    ".MultiScaleDeformableAttnFunction_fp32",
    "mmcv.msda mmcv.ops.multi_scale_deform_attn.MultiScaleDeformableAttnFunction",
    "mmcv.focal_loss mmcv.ops.focal_loss.SigmoidFocalLossFunction",
    CONVOLUTION,
}
UNREACHED = {f"{name}.{half}" for name in UNREACHED for half in ("forward", "backward")} | {
    ATTENTION,
    "bevformer.training torch.nn.parallel.distributed.DistributedDataParallel.__init__",
}


def test_every_member_is_reached_and_none_falls_back(report: dict[str, Any]) -> None:
    members = {
        f"{entry['group']} {member['target']}": member["hits"]
        for entry in report["execution"]
        for member in entry["members"]
        if entry["status"] == "applied"
    }
    assert {name for name, hits in members.items() if not hits["replacement"]} == UNREACHED
    assert {name: set(hits["reasons"]) for name, hits in members.items() if hits["reasons"]} == {
        ATTENTION: {"dropout on a CPU"},
        f"{CONVOLUTION}.forward": {"no kernel for tensors on cpu"},
        f"{CONVOLUTION}.backward": {"the forward went another way"},
    }


def test_the_pytorch_path_is_replaced_under_each_name_that_it_was_imported_by(report: dict[str, Any]) -> None:
    modules = "projects.mmdet3d_plugin.bevformer.modules"
    function = "multi_scale_deformable_attn_pytorch"
    members = [member for entry in report["execution"] for member in entry["members"]]
    rebound = {path for member in members if member["target"].endswith(function) for path in member["rebound"]}
    assert rebound == {
        f"{modules}.{name}.{function}" for name in ("decoder", "spatial_cross_attention", "temporal_self_attention")
    }
    assert [holder for member in members for holder in member["stale_holders"]] == []
