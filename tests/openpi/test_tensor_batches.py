# SPDX-License-Identifier: Apache-2.0
"""Batches that come in shared memory hold the same numbers, and where it is small they come as before."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from turbo_hydra.catalogs.models.openpi import tensor_batches

BATCH: dict[str, Any] = {
    "image": {"a": np.arange(12.0, dtype=np.float32)},
    "mask": np.array([True, False]),
    "token": np.arange(3),
    "token_ar_mask": None,
}


@pytest.fixture
def reasons(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Collect what the guard says."""
    said: list[str] = []
    monkeypatch.setattr(tensor_batches, "fallback", said.append)
    return said


def collated(monkeypatch: pytest.MonkeyPatch, batch: Any, *, workers: int = 2, free: int = 10**6) -> Any:
    info = SimpleNamespace(num_workers=workers) if workers else None
    monkeypatch.setattr(torch.utils.data, "get_worker_info", lambda: info)
    monkeypatch.setattr(tensor_batches, "_free", lambda: free)
    return tensor_batches.collate(lambda items: items, None)(batch)


def test_a_worker_gives_tensors_of_the_same_numbers(monkeypatch: pytest.MonkeyPatch, reasons: list[str]) -> None:
    found = collated(monkeypatch, BATCH)
    assert reasons == []
    for mine, array in ((found["image"]["a"], BATCH["image"]["a"]), (found["mask"], BATCH["mask"])):
        assert isinstance(mine, torch.Tensor)
        assert torch.equal(mine, torch.as_tensor(array))
    assert found["token_ar_mask"] is None


@pytest.mark.parametrize(
    ("batch", "settings", "reason"),
    [
        (BATCH, {"workers": 0}, "no worker"),
        (BATCH, {"free": 400}, "shared memory"),
        ({"prompt": np.array(["pick", "place"])}, {}, "no array of numbers"),
        ({"image": [1, 2]}, {}, "no array of numbers"),
    ],
)
def test_other_batches_stay_as_they_are(
    monkeypatch: pytest.MonkeyPatch, reasons: list[str], batch: Any, settings: dict[str, int], reason: str
) -> None:
    assert collated(monkeypatch, batch, **settings) is batch
    assert len(reasons) == 1
    assert reason in reasons[0]
