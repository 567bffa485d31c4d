# SPDX-License-Identifier: Apache-2.0
"""rms_norm: PyTorch's own rms_norm and Gemma's, result and gradients."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from tests.kernels.closeness import DTYPES, hold, normal
from turbo_hydra.kernels.rms_norm import rms_norm, rms_norm_plain


@pytest.mark.parametrize("offset", [0.0, 1.0])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(2, 2, 48), (2, 1030), (17,)], ids=str)
def test_no_further_from_the_exact_result_than_the_library(
    dtype: torch.dtype, shape: tuple[int, ...], offset: float, draw: torch.Generator
) -> None:
    hold(
        lambda x, weight: rms_norm(x, weight, 1e-6, offset),
        lambda x, weight: rms_norm_plain(x, weight, 1e-6, offset),
        [normal(draw, *shape, dtype=dtype), normal(draw, shape[-1], dtype=torch.float32)],
    )


def test_pytorch_has_the_same_norm(draw: torch.Generator) -> None:
    x, weight = normal(draw, 4, 40, dtype=torch.float64), normal(draw, 40, dtype=torch.float64)
    torch.testing.assert_close(rms_norm(x, weight, 1e-3), functional.rms_norm(x, (40,), weight, 1e-3))


def test_a_row_of_ones_by_hand(device: torch.device) -> None:
    found = rms_norm(torch.full((1, 4), 3.0, device=device), torch.full((4,), 0.5, device=device), 7.0, offset=1.0)
    assert found.tolist() == [[3.0 / 4.0 * 1.5] * 4]
