# SPDX-License-Identifier: Apache-2.0
"""The meter on a CUDA device: its clock, its late reading, and that nothing of it waits for the device."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

if TYPE_CHECKING:
    from tests.measure.conftest import Measured

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.fixture(autouse=True)
def initialised() -> Iterator[None]:
    torch.cuda.init()
    yield
    torch.cuda.set_sync_debug_mode("default")
    torch.cuda.synchronize()


def network() -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 1)).cuda()
    return model, torch.randn(512, 256, device="cuda")


def busy(milliseconds: float) -> None:
    """Keep the device busy; its clock is below 2 GHz."""
    torch.cuda._sleep(int(2e6 * milliseconds))


def test_losses_norms_device_times_and_memory(measured: Measured) -> None:
    model, x = network()
    optimizer = torch.optim.AdamW(model.parameters())
    losses, norms = [], []
    with measured() as metered:
        for _ in range(5):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0))
            optimizer.step()
            losses.append(loss)
    rows = metered.rows
    assert [row.loss for row in rows] == [loss.item() for loss in losses]
    assert [row.grad_norm for row in rows] == [norm.item() for norm in norms]
    assert rows[0].device_ms is None
    assert all(row.device_ms is not None and row.device_ms > 0 for row in rows[1:])
    summary = metered.meter.summary()
    assert summary["device_median_ms"] > 0
    assert summary["peak_memory"]["device_allocated_bytes"] >= x.nbytes
    assert summary["peak_memory"]["device_reserved_bytes"] >= summary["peak_memory"]["device_allocated_bytes"]


def test_a_step_without_a_write_synchronises_nothing(measured: Measured) -> None:
    model, x = network()
    optimizer = torch.optim.AdamW(model.parameters())
    with measured({"interval": 1000}) as metered:
        for step in range(4):
            if step == 1:
                torch.cuda.set_sync_debug_mode("error")
            model(x).square().mean().backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        torch.cuda.set_sync_debug_mode("default")
    assert len(metered.rows) == 4
    assert metered.meter.summary()["problem"] is None


def test_writing_waits_for_no_queued_work(measured: Measured) -> None:
    model, x = network()
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)

    def step() -> None:
        model(x).square().mean().backward()
        optimizer.step()

    with measured() as metered:
        for _ in range(3):
            step()
        torch.cuda.synchronize()
        busy(1000)
        start = time.perf_counter()
        for _ in range(3):
            step()
        host = time.perf_counter() - start
        during = len(metered.rows)
        start = time.perf_counter()
        torch.cuda.synchronize()
        waited = time.perf_counter() - start
    # The device was still asleep after the steps had been queued, so nothing had waited for it.
    assert waited > 2 * host
    assert during == 3
    assert len(metered.rows) == 6
    # The fourth step is the one that the device slept in.
    slow = metered.rows[3]
    assert slow.device_ms is not None
    assert slow.ms is not None
    assert slow.device_ms > 400
    assert slow.device_ms > slow.ms


def test_a_loss_in_memory_that_a_graph_writes_again(measured: Measured) -> None:
    parameter = nn.Parameter(torch.ones(1, device="cuda"))
    optimizer = torch.optim.SGD([parameter], 0.0)
    buffer = torch.zeros((), device="cuda")
    with measured({"interval": 1000}) as metered:
        for value in range(4):
            buffer.fill_(value)
            (buffer + 0 * parameter.sum()).backward()
            # As a replayed graph does with its outputs.
            loss = parameter.sum() * 0 + buffer
            loss.backward()
            loss.detach().fill_(-1.0)
            optimizer.step()
    assert [row.losses for row in metered.rows] == [[float(value)] * 2 for value in range(4)]


def test_a_step_that_is_captured_and_replayed(measured: Measured) -> None:
    model, x = network()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-5, capturable=True)

    def step() -> torch.Tensor:
        optimizer.zero_grad(set_to_none=False)
        loss: torch.Tensor = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    with measured() as metered:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            loss = step()
        first = None
        for _ in range(5):
            graph.replay()
            first = loss.item() if first is None else first
        assert loss.item() < (first or 0)
    assert metered.meter.summary()["problem"] is None
    assert len(metered.rows) >= 3


def test_grad_scaler(measured: Measured) -> None:
    model, x = network()
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    scaler = torch.amp.GradScaler("cuda", init_scale=2.0**40)
    losses = []
    with measured() as metered:
        for _ in range(30):
            optimizer.zero_grad()
            with torch.autocast("cuda", torch.float16):
                loss = model(x).float().square().mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.item())
    rows = metered.rows
    assert [row.loss for row in rows] == losses
    assert rows[0].skipped
    assert not rows[-1].skipped


def test_cudagraph_trees(measured: Measured) -> None:
    model, x = network()
    optimizer = torch.optim.AdamW(model.parameters())
    compiled = torch.compile(model, mode="reduce-overhead")
    losses = []
    with measured({"interval": 1000}) as metered:
        for _ in range(8):
            torch.compiler.cudagraph_mark_step_begin()
            optimizer.zero_grad()
            loss = compiled(x).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    assert [row.loss for row in metered.rows] == losses
    assert metered.meter.summary()["problem"] is None


def test_launches_are_counted_in_a_profile(measured: Measured) -> None:
    model, x = network()
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    with measured({"profile": 2}) as metered:
        for _ in range(7):
            model(x).square().mean().backward()
            optimizer.step()
    # Two linear layers, activation and loss, forward and backward, and an optimizer.
    assert 10 < metered.meter.summary()["launches_per_step"] < 100


def test_the_last_step_is_read_when_it_has_passed(measured: Measured) -> None:
    model, x = network()
    optimizer = torch.optim.AdamW(model.parameters())
    with measured() as metered:
        for _ in range(2):
            optimizer.zero_grad()
            busy(50)
            loss = model(x).square().mean()
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
    assert metered.rows[-1].loss == loss.item()
    assert metered.rows[-1].grad_norm == norm.item()
