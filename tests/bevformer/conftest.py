# SPDX-License-Identifier: Apache-2.0
"""The small model is importable in these tests and nowhere else."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from tests.bevformer.small import repository


@pytest.fixture(autouse=True)
def _small_repository() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with repository(), torch.random.fork_rng(devices=[]):
        yield
    torch.set_num_threads(threads)
