# SPDX-License-Identifier: Apache-2.0
"""Batches that are copied beside the step before are the same batches; without a device they are not touched."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from turbo_hydra.catalogs.models.openpi import device_batches

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@dataclasses.dataclass(frozen=True)
class Observation:
    images: dict[str, Any]
    state: Any
    prompt: Any = None

    def __post_init__(self) -> None:
        assert all(item is not None for item in (self.images, self.state))  # as upstream's types ask


class Loader:
    def __init__(self, *batches: Any, workers: int = 1) -> None:
        self.batches = batches
        self._data_loader = SimpleNamespace(torch_loader=SimpleNamespace(num_workers=workers))

    def __iter__(self) -> Iterator[Any]:
        yield from self.batches


def batch(number: int) -> tuple[Observation, Tensor]:
    images = torch.full((2, 5, 4, 3), float(number)).permute(0, 3, 1, 2)  # a view, as upstream's images are
    return Observation({"a": images, "b": images + 1}, torch.tensor([number])), torch.tensor([[number, number]])


@pytest.fixture
def reasons(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Collect what the guard says."""
    said: list[str] = []
    monkeypatch.setattr(device_batches, "fallback", said.append)
    return said


def iterated(loader: Loader) -> list[Any]:
    return list(device_batches.batches(Loader.__iter__, None)(loader))


@pytest.mark.skipif(torch.cuda.is_available(), reason="has a CUDA device")
def test_without_a_device_each_batch_is_the_loaders_own(reasons: list[str]) -> None:
    loader = Loader(batch(0), batch(1))
    assert all(mine is own for mine, own in zip(iterated(loader), loader.batches, strict=True))
    assert reasons == ["no CUDA device"]


@needs_cuda
def test_samples_of_the_training_process_are_drawn_when_the_script_asks_for_them(reasons: list[str]) -> None:
    asked: list[int] = []

    def drawn() -> Iterator[Any]:
        for number in range(3):
            assert asked == list(range(number + 1))
            yield batch(number)

    loader = Loader(workers=0)
    iterator = device_batches.batches(lambda self: drawn(), None)(loader)
    for number in range(3):
        asked.append(number)
        assert next(iterator)[1].device.type == "cpu"
    assert reasons == ["samples are made in the training process"]


@needs_cuda
def test_the_next_batch_is_taken_while_one_is_used_and_an_error_comes_in_its_place() -> None:
    taken: list[int] = []

    def failing(self: Any) -> Iterator[Any]:
        for number in range(3):
            taken.append(number)
            yield batch(number)
        raise OSError("no more")

    found = []
    batches = device_batches.batches(failing, None)(Loader())
    for _ in range(3):
        found.append(int(next(batches)[1][0, 0]))
        assert len(taken) <= len(found) + 1
    with pytest.raises(OSError, match="no more"):
        next(batches)
    assert found == taken == [0, 1, 2]


@needs_cuda
def test_a_loop_that_is_left_early_ends(reasons: list[str]) -> None:
    iterator = device_batches.batches(Loader.__iter__, None)(Loader(*map(batch, range(9))))
    next(iterator)
    iterator.close()  # type: ignore[attr-defined]
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("batches")]


def test_all_fields_are_found_and_none_is_no_field() -> None:
    observation, actions = batch(3)
    found = device_batches._leaves((observation, actions))
    assert [id(item) for item in found] == [
        id(item) for item in (observation.images["a"], observation.images["b"], observation.state, actions)
    ]
    doubled, _ = device_batches._mapped((observation, actions), lambda item: item * 2)
    assert isinstance(doubled, Observation)
    assert torch.equal(doubled.images["b"], observation.images["b"] * 2)
    assert doubled.prompt is None


@needs_cuda
def test_what_is_no_tensor_of_the_host_is_left_alone(reasons: list[str]) -> None:
    loader = Loader({"a": np.zeros(3)}, {"a": torch.zeros(3, device="cuda")})
    assert all(mine is own for mine, own in zip(iterated(loader), loader.batches, strict=True))
    assert len(reasons) == 2


@needs_cuda
def test_batches_are_on_the_device_and_the_scripts_own_copy_waits_for_nothing(reasons: list[str]) -> None:
    found = []
    torch.cuda.set_sync_debug_mode("error")
    try:
        for observation, actions in device_batches.batches(Loader.__iter__, None)(Loader(*map(batch, range(20)))):
            torch.empty(64, 2**20, device="cuda").normal_()  # what the script queues
            found.append((observation.images["a"].to("cuda") + 0, actions.to("cuda") + 0, observation))
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert reasons == []
    for number, (images, actions, observation) in enumerate(found):
        expected, wanted = batch(number)
        assert torch.equal(images.cpu(), expected.images["a"])
        assert torch.equal(actions.cpu(), wanted)
        assert observation.images["a"].stride() == expected.images["a"].stride()
