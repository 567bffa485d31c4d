# SPDX-License-Identifier: Apache-2.0
"""One trace of a few steps by torch's profiler, when asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from turbo_hydra.measure import device

FILE = "trace.json"
# The first steps allocate, compile and tune; a trace of them says nothing about the others.
FIRST = 3
LAUNCHES = ("cudaLaunchKernel", "cudaLaunchKernelExC", "cuLaunchKernel", "cuLaunchKernelEx", "cudaGraphLaunch")
LAUNCHES_HIP = ("hipLaunchKernel", "hipExtModuleLaunchKernel", "hipModuleLaunchKernel", "hipExtLaunchKernel")


class StepProfiler:
    """Traces `count` steps after the first `FIRST`.

    Parameters
    ----------
    count : int
        Number of steps.
    folder : Path
        Where `trace.json` goes (for chrome://tracing and Perfetto).

    Attributes
    ----------
    launches : float or None
        Kernels launched a step, once the trace is done; None on a CPU.
    """

    def __init__(self, count: int, folder: Path) -> None:
        self._last = FIRST + count
        self._path = folder / FILE
        self._profile: torch.profiler.profile | None = None
        self.launches: float | None = None

    def step_ended(self, steps: int) -> bool:
        """Start or stop; `steps` is the number of steps that have ended. True if the profiler ran in the last one."""
        if self._profile is not None:
            if steps >= self._last:
                self._finish(self._profile, self._last - FIRST)
            return True
        if steps == FIRST:
            activities = [torch.profiler.ProfilerActivity.CPU]
            if device.in_use():
                activities.append(torch.profiler.ProfilerActivity.CUDA)
            self._profile = torch.profiler.profile(activities=activities)
            self._profile.start()
        return False

    def close(self, steps: int) -> None:
        """Keep what was traced if the script ends before the last step."""
        if self._profile is not None:
            self._finish(self._profile, max(1, steps - FIRST))

    def _finish(self, profile: torch.profiler.profile, steps: int) -> None:
        self._profile = None
        profile.stop()
        profile.export_chrome_trace(str(self._path))
        if device.in_use():
            events: Any = profile.events
            names = {*LAUNCHES, *LAUNCHES_HIP}
            self.launches = sum(event.name in names for event in events()) / steps
