# SPDX-License-Identifier: Apache-2.0
"""Each replacement against its original: results, gradients, and where it leaves the call to the original."""

import copy
import subprocess
import sys

import pytest
import torch
from my_optimizations import replacements
from my_optimizations.catalog import CachedMask
from sample_model.layers import RMSNorm, causal_mask

CPU = torch.device("cpu")


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 7, 33), (2, 65, 48)])
def test_rms_norm_gives_the_original_and_its_gradients_up_to_rounding(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    x = torch.randn(shape)
    norm = RMSNorm(shape[-1])
    torch.nn.init.normal_(norm.weight)
    ours = copy.deepcopy(norm)
    inputs = [x.clone().requires_grad_(), x.clone().requires_grad_()]
    results = [norm(inputs[0]), replacements.rms_norm_forward(ours, inputs[1])]
    torch.testing.assert_close(results[1], results[0])
    for result in results:
        result.square().sum().backward()
    torch.testing.assert_close(inputs[1].grad, inputs[0].grad)
    torch.testing.assert_close(ours.weight.grad, norm.weight.grad)


def test_the_cached_mask_is_the_original_and_made_once() -> None:
    cached = replacements.cached_mask(causal_mask, CachedMask())
    for length in (1, 5, 5, 9):
        assert torch.equal(cached(length, CPU), causal_mask(length, CPU))
    assert cached(5, CPU) is cached(5, CPU)


def test_long_masks_are_left_to_the_original() -> None:
    cached = replacements.cached_mask(causal_mask, CachedMask(longest=4))
    assert cached(5, CPU) is not cached(5, CPU)
    assert torch.equal(cached(5, CPU), causal_mask(5, CPU))


def test_declaring_the_groups_imports_no_torch() -> None:
    code = "import sys, my_optimizations.catalog; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
