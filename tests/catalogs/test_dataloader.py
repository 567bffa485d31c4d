# SPDX-License-Identifier: Apache-2.0
"""DataLoaders get what fits and what their script left at its default."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

from tests.catalogs.conftest import Reasons
from tests.catalogs.patching import applied

ID = "torch.dataloader"


class Squares(Dataset[int]):
    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> int:
        return index * index


class Moving(Squares):
    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(4))


def chosen(loader: DataLoader[Any]) -> tuple[bool, int | None]:
    return loader.persistent_workers, loader.prefetch_factor


@pytest.mark.parametrize(
    ("dataset", "kwargs", "expected"),
    [
        (Squares(), {"num_workers": 2}, (True, 4)),
        (Squares(), {"num_workers": 2, "persistent_workers": False, "prefetch_factor": 3}, (False, 3)),
        (Squares(), {}, (False, None)),
        (Squares(), {"num_workers": 0}, (False, None)),
        (Moving(), {"num_workers": 2}, (False, 4)),
        (Stream(), {"num_workers": 2}, (False, 4)),
    ],
    ids=["workers", "given", "no workers", "none said", "set_epoch", "iterable"],
)
def test_what_a_loader_gets(dataset: Any, kwargs: dict[str, Any], expected: tuple[bool, int | None]) -> None:
    with applied(ID):
        loader: DataLoader[Any] = DataLoader(dataset, 4, **kwargs)
    assert chosen(loader) == expected
    assert loader.pin_memory is torch.accelerator.is_available()
    assert loader.batch_size == 4


def test_options_switch_each_part_off() -> None:
    with applied(ID, persistent_workers=False, prefetch_factor=0, pin_memory=False):
        loader = DataLoader(Squares(), num_workers=2)
    assert chosen(loader) == chosen(DataLoader(Squares(), num_workers=2))
    assert loader.pin_memory is False


def test_workers_stay_and_give_the_same_batches() -> None:
    with applied(ID):
        loader = DataLoader(Squares(), 4, num_workers=2)
    seen = []
    for _ in range(2):
        seen.append([batch.tolist() for batch in loader])
    workers: Any = loader._iterator
    assert seen[0] == seen[1] == [[0, 1, 4, 9], [16, 25, 36, 49], [64, 81, 100, 121]]
    assert all(worker.is_alive() for worker in workers._workers)
    workers._shutdown_workers()


def test_refusals_are_told(reasons_of: Reasons) -> None:
    said = reasons_of("turbo_hydra.catalogs.torch.dataloader")
    with applied(ID):
        DataLoader(Squares(), pin_memory=False)
    assert said == ["nothing that fits and is not given"]


def test_what_lives_is_frozen_at_the_first_batch_only(reasons_of: Reasons) -> None:
    said = reasons_of("turbo_hydra.catalogs.torch.gc_freeze")
    loader = DataLoader(Squares(), 4)
    gc.unfreeze()
    try:
        with applied("torch.gc_freeze"):
            assert [len(batch) for batch in loader] == [4, 4, 4]
            frozen = gc.get_freeze_count()
            list(loader)
        assert frozen > 1000
        assert gc.get_freeze_count() <= frozen
        assert said == ["frozen already"]
    finally:
        gc.unfreeze()


def test_a_collector_that_is_off_stays_as_it_is(reasons_of: Reasons) -> None:
    said = reasons_of("turbo_hydra.catalogs.torch.gc_freeze")
    gc.unfreeze()
    gc.disable()
    try:
        with applied("torch.gc_freeze"):
            list(DataLoader(Squares(), 4))
        assert gc.get_freeze_count() == 0
    finally:
        gc.enable()
    assert said == ["the script has switched the collector off"]
