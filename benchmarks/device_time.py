# SPDX-License-Identifier: Apache-2.0
"""Time on the device, without the host's part: launches are queued behind a kernel that only waits."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

# Cycles that the waiting kernel counts in a microsecond, at most.
_CYCLES = 2000


@dataclass(frozen=True)
class Time:
    """Milliseconds: median, and the range of the middle 80 %."""

    median: float
    low: float
    high: float


def device_time(function: Callable[[], object], repeats: int = 20, budget: float = 1.0) -> Time:
    """Time of all that a call starts on the device.

    Parameters
    ----------
    function : callable
        What is measured; it must not wait for the device.
    repeats : int
        Calls that are timed.
    budget : float
        Seconds after which no more calls are made, of which there are at least five.
    """
    for _ in range(3):
        function()
    torch.cuda.synchronize()
    start = time.perf_counter()
    function()
    host = time.perf_counter() - start
    torch.cuda.synchronize()
    wait = int((host * 1.5e6 + 100) * _CYCLES)
    times: list[float] = []
    begun = time.perf_counter()
    while len(times) < 5 or (len(times) < repeats and time.perf_counter() - begun < budget):
        before, after = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda._sleep(wait)
        before.record()
        function()
        after.record()
        after.synchronize()
        times.append(before.elapsed_time(after))
    times.sort()
    tenth = len(times) // 10
    return Time(statistics.median(times), times[tenth], times[-1 - tenth])


def host_time(function: Callable[[], object], repeats: int = 10) -> float:
    """Milliseconds, as median, until a call returns to a host whose device is busy: what launching costs."""
    times = []
    for _ in range(repeats):
        torch.cuda._sleep(50_000 * _CYCLES)
        start = time.perf_counter()
        function()
        times.append((time.perf_counter() - start) * 1e3)
        torch.cuda.synchronize()
    return statistics.median(times)


def copy_bandwidth(elements: int = 1 << 31) -> float:
    """Bytes read and written in a second by a copy on the device."""
    source = torch.randn(elements // 2, device="cuda", dtype=torch.float32).view(torch.bfloat16)
    target = torch.empty_like(source)
    return 2 * 2 * elements / (device_time(lambda: target.copy_(source)).median * 1e-3)


def matrix_rate(size: int = 8192) -> float:
    """Operations in a second of a large product of bf16 matrices."""
    left, right = (torch.randn(size, size, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    return 2 * size**3 / (device_time(lambda: left @ right).median * 1e-3)
