# SPDX-License-Identifier: Apache-2.0
"""One thread, and a seed of each test's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch

Reasons = Callable[[str], list[str]]


@pytest.fixture(autouse=True)
def _one_thread_and_own_seed() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield
    torch.set_num_threads(threads)


@pytest.fixture
def reasons_of(monkeypatch: pytest.MonkeyPatch) -> Reasons:
    """Return a function that collects what the guards of a module say."""

    def collect(module: str) -> list[str]:
        said: list[str] = []
        __import__(module)
        monkeypatch.setattr(f"{module}.fallback", said.append)
        return said

    return collect
