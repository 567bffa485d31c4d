# SPDX-License-Identifier: Apache-2.0
"""Folders of compiler caches: code is loaded from them, so nobody else may be able to write there."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Any

from turbo_hydra.launch.job import setting

VARIABLES = {"TRITON_CACHE_DIR": "triton", "TORCHINDUCTOR_CACHE_DIR": "inductor"}


class CacheRefused(Exception):
    """A cache folder belongs to somebody else, or is not a folder."""


def private_folder(path: Path) -> Path:
    """Make a folder that only this user can read and write, or verify that it is one.

    Raises
    ------
    CacheRefused
        If something else stands at its place, or another user owns it.
    OSError
        If it cannot be made.
    """
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode):
        raise CacheRefused(f"{path} is not a folder of its own")
    if found.st_uid != os.geteuid():
        raise CacheRefused(f"{path} belongs to user {found.st_uid}, not to {os.geteuid()}")
    if stat.S_IMODE(found.st_mode) & 0o077:
        path.chmod(0o700)
    return path


def default_folder() -> Path:
    """Return the folder of this user's caches: on the node's own disk, shared by ranks and jobs."""
    return Path(tempfile.gettempdir()) / f"turbo_hydra-{os.geteuid()}"


def prepare(runtime: Mapping[str, Any], cwd: str, environment: MutableMapping[str, str]) -> list[str]:
    """Point the compilers at private folders, unless the user pointed them somewhere.

    Parameters
    ----------
    runtime : mapping
        The settings under `runtime`; `caches.dir` replaces the default folder.
    cwd : str
        Where the user stood: a relative `caches.dir` starts there.
    environment : mutable mapping
        Gets the variables that it lacks.

    Returns
    -------
    list of str
        A warning for each folder that was refused; a fresh one is used in its place.
    """
    named = setting(runtime, "caches.dir")
    base = default_folder() if named is None else Path(cwd, str(named)).expanduser()
    warnings = []
    for variable, name in VARIABLES.items():
        if environment.get(variable):
            environment[variable] = os.path.abspath(os.path.join(cwd, environment[variable]))
            continue
        try:
            folder = private_folder(private_folder(base) / name)
        except (CacheRefused, OSError) as problem:
            folder = Path(tempfile.mkdtemp(prefix=f"turbo_hydra-{name}-"))
            warnings.append(f"{variable}: {problem}; this run uses {folder}, set runtime.caches.dir to choose another")
        environment[variable] = str(folder)
    return warnings
