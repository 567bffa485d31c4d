# SPDX-License-Identifier: Apache-2.0
"""What the system tells of this process: its age, its peak memory on the host and on its device."""

from __future__ import annotations

import os
import re
import resource
import sys
from pathlib import Path

import torch

from turbo_hydra.measure import device

_STATUS = Path("/proc/self/status")


def age_seconds() -> float:
    """Time since this process was started; 0 where the system does not tell."""
    try:
        started = Path("/proc/self/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()[19]
        uptime = Path("/proc/uptime").read_text(encoding="ascii").split()[0]
    except (OSError, IndexError):
        return 0.0
    return max(0.0, float(uptime) - int(started) / os.sysconf("SC_CLK_TCK"))


def peak_host_bytes() -> int:
    """Largest resident set of this process so far.

    Linux's `ru_maxrss` starts from what the parent had when it forked, so the kernel's own high-water mark is read
    where there is one.
    """
    try:
        found = re.search(r"^VmHWM:\s*(\d+) kB$", _STATUS.read_text(encoding="ascii", errors="replace"), re.MULTILINE)
    except OSError:
        found = None
    if found:
        return int(found[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def peak_device_bytes() -> tuple[int, int] | None:
    """Largest number of bytes that tensors took, and that the allocator held; None where no CUDA is in use."""
    if not device.in_use():
        return None
    return torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
