# SPDX-License-Identifier: Apache-2.0
"""Whether the machine has the devices that a run asks for; asked before a rank starts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from turbo_hydra.engine import visible
from turbo_hydra.engine.backend import BACKENDS
from turbo_hydra.launch.job import JobError, setting

# `auto`: whatever the script takes, which nobody can check before.
ACCELERATORS = ("auto", *BACKENDS)


def accelerator(runtime: Mapping[str, Any]) -> str:
    """Return `runtime.accelerator`.

    Raises
    ------
    JobError
        If it is none of those known.
    """
    named = setting(runtime, "accelerator", "auto")
    if named not in ACCELERATORS:
        raise JobError(f"'runtime.accelerator' must be one of {', '.join(ACCELERATORS)}, found {named!r}")
    return str(named)


def check(runtime: Mapping[str, Any], ranks: int, torch_version: str, backend: str | None, found: int) -> None:
    """Refuse a run with fewer devices than ranks.

    Parameters
    ----------
    runtime : mapping
        The settings under `runtime`.
    ranks : int
        Ranks on this node; each takes one device.
    torch_version : str
        For the message.
    backend : {"cuda", "hip"} or None
        What torch was built for.
    found : int
        Devices that torch sees.

    Raises
    ------
    JobError
        If a device is missing, or torch was built for another kind of device.
    """
    named = accelerator(runtime)
    if named in ("auto", "cpu"):
        return
    kind, needed = {"cuda": ("CUDA", "cuda"), "hcu": ("HCU", "hip")}[named]
    wanted = f"runtime.accelerator={named} needs {ranks} {kind} device{'s' if ranks > 1 else ''} for {ranks} "
    wanted += f"rank{'s' if ranks > 1 else ''}"
    if backend != needed:
        built = {"cuda": "CUDA", "hip": "HIP", None: "the CPU only"}[backend]
        raise JobError(
            f"{wanted}, and torch {torch_version} is built for {built}; install torch for it, or choose a runtime "
            "such as runtime=local"
        )
    if found < ranks:
        lists = [f"{name}={os.environ[name]}" for name in visible.lists(os.environ, needed)]
        where = f" with {', '.join(lists)}" if lists else ""
        raise JobError(f"{wanted}, found {found}{where}; set runtime.ranks={max(found, 1)} or choose another runtime")
