# SPDX-License-Identifier: Apache-2.0
"""What the tests of kernels share."""

from __future__ import annotations

import pytest
import torch

from tests.kernels.interpreting import DEVICE


@pytest.fixture(scope="session")
def device() -> torch.device:
    """Where the tensors of a test are."""
    return torch.device(DEVICE)


@pytest.fixture
def draw(device: torch.device) -> torch.Generator:
    """A generator of numbers, the same in each run."""
    return torch.Generator(device).manual_seed(1)
