# SPDX-License-Identifier: Apache-2.0
"""Where compilers keep their results: private to the user, on the node's own disk, shared by ranks and jobs."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import platform
import stat
import sys
import tempfile
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import turbo_hydra
from turbo_hydra.engine import visible
from turbo_hydra.launch import files, private
from turbo_hydra.launch.job import setting
from turbo_hydra.launch.private import CacheRefused, private_folder

VARIABLES = {
    "TRITON_CACHE_DIR": "triton",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "TORCH_EXTENSIONS_DIR": "extensions",
    "TURBO_HYDRA_BUILDS_DIR": "builds",
}
HIP_VARIABLES = {"MIOPEN_CUSTOM_CACHE_DIR": "miopen", "MIOPEN_USER_DB_PATH": "miopen-db"}
# Names those of VARIABLES that we set: on a network disk each rank moves them to a folder of its own.
OURS = "TURBO_HYDRA_CACHES"


@dataclass
class Prepared:
    """What was prepared for a node's ranks.

    Attributes
    ----------
    warnings : list of str
        One for each folder that was refused; a fresh one is used in its place.
    temporary : list of Path
        Those fresh ones, to be removed after the run.
    """

    warnings: list[str] = field(default_factory=list)
    temporary: list[Path] = field(default_factory=list)

    def remove(self) -> None:
        """Remove the folders that were this run's alone."""
        for folder in self.temporary:
            private.remove(folder)


def default_folder() -> Path:
    """Return the folder of this user's caches on the node's own disk."""
    return Path(tempfile.gettempdir()) / f"turbo_hydra-{os.geteuid()}"


def ingredients(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what compiled code depends on: versions, the devices, the CPU, and the kernels' sources."""
    found = {"python": platform.python_version(), "turbo_hydra": turbo_hydra.__version__}
    for name in ("torch", "triton", "pytorch-triton-rocm"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    kind, devices = visible.devices(environment)
    found["devices"] = f"{kind or 'none'}: {', '.join(sorted(set(visible.models(devices))))}" if devices else "none"
    found["cpu"] = _cpu()
    found["sources"] = _sources()
    return found


def _cpu() -> str:
    """Name the instructions that code for this machine's CPU may use."""
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").split("\n\n")[0].splitlines()
    except OSError:
        lines = []
    told = [line for line in lines if line.startswith(("model name", "flags", "Features", "CPU part"))]
    return f"{platform.machine()} {hashlib.sha256('|'.join(told).encode()).hexdigest()[:12]}"


@functools.cache
def _sources() -> str:
    folder = Path(turbo_hydra.__file__).resolve().parent / "kernels"
    digest = hashlib.sha256()
    for path in sorted(folder.resolve().rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            digest.update(path.relative_to(folder.resolve()).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]


def key(found: Mapping[str, str]) -> str:
    """Return the name of the folder for these ingredients."""
    return hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()[:16]


def prepare(runtime: Mapping[str, Any], cwd: str, environment: MutableMapping[str, str]) -> Prepared:
    """Point the compilers at private folders, unless the user pointed them somewhere.

    Parameters
    ----------
    runtime : mapping
        The settings under `runtime`; `caches.dir` replaces the default folder.
    cwd : str
        Where the user stood: a relative `caches.dir` or variable starts there.
    environment : mutable mapping
        Gets the variables that it lacks.
    """
    named = setting(runtime, "caches.dir")
    base = default_folder() if named is None else Path(os.path.abspath(os.path.join(cwd, os.path.expanduser(named))))
    prepared = Prepared()
    ours = []
    found = ingredients(environment)
    hip = setting(runtime, "accelerator") == "hcu" or found["devices"].startswith("hip")
    for variable, name in (VARIABLES | HIP_VARIABLES if hip else VARIABLES).items():
        if environment.get(variable):
            environment[variable] = os.path.abspath(os.path.join(cwd, environment[variable]))
            prepared.warnings += _of_the_user(variable, Path(environment[variable]))
            continue
        try:
            inside = private_folder(private_folder(base) / key(found))
            if not (inside / "key.json").exists():
                files.write_json(inside / "key.json", found)
            folder = private_folder(inside / name)
            private.verify(folder)
        except (CacheRefused, OSError) as problem:
            folder = Path(tempfile.mkdtemp(prefix=f"turbo_hydra-{name}-"))
            prepared.temporary.append(folder)
            prepared.warnings.append(
                f"{variable}: {problem}; this run uses {folder}, set runtime.caches.dir to choose another"
            )
        environment[variable] = str(folder)
        ours.append(variable)
    environment[OURS] = ",".join(ours)
    return prepared


def _of_the_user(variable: str, folder: Path) -> list[str]:
    """Warn where whoever else can write into a folder that the user chose can have this run load his code."""
    try:
        found = os.stat(folder)
    except OSError:
        return []  # the compiler will make it
    if found.st_uid not in (os.geteuid(), 0):
        who = f"belongs to user {found.st_uid}"
    elif found.st_mode & stat.S_IWOTH:
        who = "can be written by everybody"
    else:
        return []
    return [f"{variable}={folder} {who}, and code is loaded from there; unset it for a private folder"]


def for_rank(environment: MutableMapping[str, str]) -> None:
    """Give a rank folders of its own where ours are on a network disk, where ranks cannot share them."""
    where = f"{platform.node() or 'host'}-{environment.get('LOCAL_RANK', '0')}"
    for variable in filter(None, environment.get(OURS, "").split(",")):
        folder = Path(environment[variable])
        if folder.name != where and private.is_network(folder):
            try:
                environment[variable] = str(private_folder(folder / where))
            except (CacheRefused, OSError) as problem:
                sys.stderr.write(f"turbo_hydra: {variable}: {problem}; the ranks share {folder}\n")
