# SPDX-License-Identifier: Apache-2.0
"""Where the Triton kernel runs the attentions' Functions call it, forward and backward: here in an interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DEFORMABLE = """
import sys, torch
sys.path.insert(0, {root!r})
import tests.kernels.interpreting  # mends the interpreter
from tests.bevformer import small
from turbo_hydra.catalogs.mmcv import deform_conv
from turbo_hydra.engine.objects import load_object

said = []
deform_conv.fallback = said.append
torch.set_num_threads(1)
both = {{"mmcv.dcn": {{}}, "mmcv.dcn_kernel": {{}}}}
with small.repository():
    function = load_object("mmcv.ops.modulated_deform_conv.ModulatedDeformConv2dFunction")
    for groups, deform_groups, stride in ((1, 1, 1), (2, 2, 2)):
        torch.manual_seed(0)
        size = (5 + stride) // stride
        shapes = [(2, 4, 6, 6), (2, deform_groups * 18, size, size), (2, deform_groups * 9, size, size)]
        shapes += [(6, 4 // groups, 3, 3), (6,)]
        leaves = [torch.randn(shape, requires_grad=True) for shape in shapes]
        # With offsets of zero, as a layer begins, all points lie on cells, where slopes jump.
        for offset in (leaves[1], torch.zeros_like(leaves[1], requires_grad=True)):
            leaves[1] = offset
            results = []
            for ids in ({{"mmcv.dcn": {{}}}}, both):
                with small.applied(ids):
                    output = function.apply(*leaves, stride, 1, 1, groups, deform_groups)
                    results.append((output, *torch.autograd.grad(output, leaves, torch.ones_like(output).cumsum(1))))
            torch.testing.assert_close(*results, atol=1e-5, rtol=1e-5)
        expected = torch.nn.functional.conv2d(leaves[0], leaves[3], leaves[4], stride, 1, 1, groups)
        with small.applied(both):
            mask = torch.ones_like(leaves[2])
            given = (*leaves[:2], mask, *leaves[3:])
            found = function.apply(*given, stride, 1, 1, groups, deform_groups)
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
print("fell back", said)
"""
PROGRAM = """
import sys, torch
sys.path.insert(0, {root!r})
import tests.kernels.interpreting  # mends the interpreter
from tests.bevformer import small
from turbo_hydra.catalogs.mmcv import msda
from turbo_hydra.engine.objects import load_object
from turbo_hydra.kernels.msda import msda_plain

said = []
msda.fallback = said.append
torch.set_num_threads(1)
torch.manual_seed(0)
shapes = torch.tensor([[3, 4], [2, 2]])
starts = torch.tensor([0, 12])
value = torch.randn(2, 16, 2, 4, requires_grad=True)
locations = torch.rand(2, 5, 2, 2, 3, 2, requires_grad=True)
weights = torch.rand(2, 5, 2, 2, 3, requires_grad=True)
leaves = (value, locations, weights)
expected = msda_plain(value, shapes, starts, locations, weights)
grad = torch.randn_like(expected)
wanted = torch.autograd.grad(expected, leaves, grad)
with small.repository():
    ours = small.part("multi_scale_deformable_attn_function.MultiScaleDeformableAttnFunction_fp32")
    mmcvs = load_object("mmcv.ops.multi_scale_deform_attn.MultiScaleDeformableAttnFunction")
    with small.applied({{"mmcv.msda": {{}}, "bevformer.msda": {{}}}}):
        found = [function.apply(value, shapes, starts, locations, weights, 64) for function in (ours, mmcvs)]
        path = load_object("mmcv.ops.multi_scale_deform_attn.multi_scale_deformable_attn_pytorch")
        found.append(path(value, shapes, locations, weights))
        for output in found:
            torch.testing.assert_close(output, expected, atol=1e-5, rtol=1e-5)
            for mine, theirs in zip(torch.autograd.grad(output, leaves, grad), wanted):
                torch.testing.assert_close(mine, theirs, atol=1e-4, rtol=1e-4)
    net, data = small.model(dcn=False), small.batch()
    plain = small.step(net, data)
    with small.applied({{"mmcv.msda": {{}}, "bevformer.sca": {{}}, "bevformer.tsa": {{}}}}):
        small.same(small.step(net, data), plain, 1e-4)
print("fell back", said)
"""


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("program", [PROGRAM, DEFORMABLE], ids=["attention", "deformable convolution"])
def test_the_functions_call_the_kernel_and_have_its_gradients(program: str) -> None:
    pytest.importorskip("triton", reason="kernels need triton, and it is not installed")
    done = subprocess.run(
        [sys.executable, "-c", program.format(root=str(ROOT))],
        env={**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip() == "fell back []"
