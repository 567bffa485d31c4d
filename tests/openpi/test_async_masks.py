# SPDX-License-Identifier: Apache-2.0
"""Masks made of lists are the same tensors; a device is not waited for, and a part of the model sees no difference."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import _get_current_function_mode_stack

from turbo_hydra.catalogs.models.openpi import async_masks

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def called(func: Callable[..., Any], *args: Any) -> Any:
    """What a function gives that stands where `PI0Pytorch.embed_prefix` does."""
    return async_masks.embed(lambda self, *args: func(*args), None)(SimpleNamespace(), *args)


def part(func: Callable[..., Any], *args: Any) -> Any:
    """What a function gives that is called as a part of the model."""
    return async_masks.apply_checkpoint(lambda self, func, *args: func(*args), None)(None, func, *args)


@pytest.fixture
def reasons(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Collect what the guard says."""
    said: list[str] = []
    monkeypatch.setattr(async_masks, "fallback", said.append)
    return said


@pytest.mark.skipif(torch.cuda.is_available(), reason="has a CUDA device")
def test_without_a_device_nothing_is_entered(reasons: list[str]) -> None:
    assert called(_get_current_function_mode_stack) == []
    assert reasons == ["no CUDA device, or compiled as a whole"]


@needs_cuda
@pytest.mark.parametrize("dtype", [torch.bool, torch.bfloat16, torch.float32])
def test_a_list_becomes_the_same_tensor_and_waits_for_nothing(reasons: list[str], dtype: torch.dtype) -> None:
    values = [0] * 968 + [1] + [0] * 9
    device = torch.device("cuda", torch.cuda.current_device())

    def masks() -> list[Tensor]:
        torch.empty(64, 2**20, device="cuda").normal_()  # what the script queues
        return [torch.tensor(values, dtype=dtype, device=where) for where in ("cuda", device, device.index)]

    torch.cuda.set_sync_debug_mode("error")
    try:
        found = called(masks)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    expected = torch.tensor(values, dtype=dtype, device=device)
    assert all(item.device == device and item.dtype == dtype and torch.equal(item, expected) for item in found)
    assert reasons == []


@needs_cuda
def test_other_tensors_are_torchs_own() -> None:
    def made() -> tuple[Tensor, ...]:
        on_cpu, scalar = torch.tensor([1, 2]), torch.tensor(2.0, device="cuda")
        wanted = torch.tensor([1.0], device="cuda", requires_grad=True)
        return on_cpu, scalar, wanted, torch.tensor([], device="cuda")

    on_cpu, scalar, wanted, empty = called(made)
    assert on_cpu.device.type == "cpu"
    assert not on_cpu.is_pinned()
    assert scalar.item() == 2.0
    assert wanted.is_leaf
    assert wanted.requires_grad
    assert empty.shape == (0,)


@needs_cuda
def test_parts_of_the_model_are_called_as_elsewhere_also_after_an_error() -> None:
    seen: list[list[Any]] = []

    def noted() -> None:
        seen.append(_get_current_function_mode_stack())

    def failing() -> None:
        noted()
        raise RuntimeError("out of memory")

    def body() -> None:
        noted()
        part(noted)
        with pytest.raises(RuntimeError, match="out of memory"):
            part(failing)
        noted()
        raise OSError("no more")

    with pytest.raises(OSError, match="no more"):
        called(body)
    noted()
    part(noted)
    assert [len(stack) for stack in seen] == [1, 0, 0, 1, 0, 0]


@needs_cuda
def test_a_compiled_part_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    graphs: list[Any] = []

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph

    torch._dynamo.reset()
    compiled = torch.compile(lambda value: value.sin() + 1, backend=backend)
    value = torch.ones(3)
    for _ in range(2):
        compiled(value)
        called(lambda: part(compiled, value))
    assert len(graphs) == 1
    called(lambda: compiled(value))
    assert len(graphs) == 2  # what would happen without
    torch._dynamo.reset()
