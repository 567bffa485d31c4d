# SPDX-License-Identifier: Apache-2.0
"""Where the kernel takes a process's memory from: set and read back by system calls, since libnuma is seldom there."""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Iterable

# set_mempolicy and get_mempolicy.
_CALLS = {"x86_64": (238, 239), "aarch64": (237, 236)}
MODES = {"default": 0, "preferred": 1, "bind": 2, "interleave": 3, "local": 4}
_NAMES = {number: name for name, number in MODES.items()}
_BITS = 1024
_MODE_FLAGS = 0xF000


def set_policy(mode: str, nodes: Iterable[int]) -> None:
    """Set this thread's policy; threads and children that it starts later have it too.

    Parameters
    ----------
    mode : str
        One of `MODES`.
    nodes : iterable of int
        The NUMA nodes that it is about; `default` and `local` are about none.

    Raises
    ------
    OSError
        If the kernel refuses, or this machine's calls are not known.
    """
    mask = (ctypes.c_ulong * (_BITS // 64))()
    if mode not in ("default", "local"):
        for node in nodes:
            mask[node // 64] |= 1 << node % 64
    _call(0, MODES[mode], mask, _BITS)


def policy() -> str:
    """Return this thread's policy as the kernel has it: `default`, `bind:0`, `interleave:0-1`."""
    from turbo_hydra.launch.topology import text

    mode = ctypes.c_int()
    mask = (ctypes.c_ulong * (_BITS // 64))()
    try:
        _call(1, ctypes.byref(mode), mask, _BITS, None, 0)
    except OSError as problem:
        return f"unknown ({problem.strerror})"
    name = _NAMES.get(mode.value & ~_MODE_FLAGS, str(mode.value))
    nodes = [node for node in range(_BITS) if mask[node // 64] >> node % 64 & 1]
    return f"{name}:{text(nodes)}" if nodes else name


def _call(which: int, *arguments: object) -> None:
    calls = _CALLS.get(platform.machine())
    if calls is None:
        raise OSError(38, f"memory policies are not known on {platform.machine()}")
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(calls[which], *arguments) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
