# SPDX-License-Identifier: Apache-2.0
"""The environment of agent and ranks: what is inherited, then unset, then set."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, MutableMapping
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from turbo_hydra.engine import visible
from turbo_hydra.launch.job import JobError, count, setting

# What the agent gives each rank; `unset: [MASTER_ADDR]` drops what was inherited, not these.
OF_THE_AGENT = frozenset(
    {
        "RANK",
        "LOCAL_RANK",
        "WORLD_SIZE",
        "LOCAL_WORLD_SIZE",
        "GROUP_RANK",
        "GROUP_WORLD_SIZE",
        "ROLE_RANK",
        "ROLE_NAME",
        "ROLE_WORLD_SIZE",
        "MASTER_ADDR",
        "MASTER_PORT",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING",
    }
)


def _is_of_the_agent(name: str) -> bool:
    return name in OF_THE_AGENT or name.startswith("TORCHELASTIC_")


def apply(runtime: Mapping[str, Any], environment: MutableMapping[str, str], in_rank: bool = False) -> None:
    """Change an environment as `runtime.environment` says: `unset` first, then `set`.

    Parameters
    ----------
    runtime : mapping
        The settings under `runtime`. Variables that job.json withheld are not among them and stay as inherited.
    environment : mutable mapping
        Changed in place.
    in_rank : bool
        Whether it is a rank's own, which keeps what its agent gave it.

    Raises
    ------
    JobError
        If a name or a value cannot be an environment variable.
    """
    names = setting(runtime, "environment.unset", [])
    values = setting(runtime, "environment.set", {})
    withheld = setting(runtime, "environment.withheld", [])
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise JobError(f"'runtime.environment.unset' must be a list of names, found {names!r}")
    if not isinstance(values, Mapping):
        raise JobError(f"'runtime.environment.set' must map names to values, found {values!r}")
    for name in names:
        if name not in withheld and not (in_rank and _is_of_the_agent(name)):
            environment.pop(name, None)
    for name, value in values.items():
        if value is None or (in_rank and _is_of_the_agent(str(name))):
            continue
        environment[_checked(str(name))] = _text(str(name), value)


def _checked(name: str) -> str:
    if not name or "=" in name or "\0" in name:
        raise JobError(f"'runtime.environment.set' has {name!r}, which cannot name an environment variable")
    return name


def _text(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, (str, int, float)) and "\0" not in str(value):
        return str(value)
    raise JobError(f"'runtime.environment.set.{name}' must be a text, a number or true/false, found {value!r}")


def for_agent(runtime: Mapping[str, Any], ranks: int) -> dict[str, str]:
    """Return the environment that the agent starts with, and its ranks after it."""
    environment = inherited()
    if setting(runtime, "accelerator") == "cpu":
        # Scripts ask torch what there is, not the configuration. What ROCR's list leaves, HIP's hides.
        environment.update({visible.CUDA: "", visible.HIP: ""})
    apply(runtime, environment)
    threads = setting(runtime, "omp_threads")
    if threads is not None:
        environment["OMP_NUM_THREADS"] = str(count(runtime, "omp_threads", 1, least=1))
    elif ranks > 1:
        # As torchrun does: ranks that each take every core slow one another down.
        environment.setdefault("OMP_NUM_THREADS", "1")
    return environment


def inherited() -> dict[str, str]:
    """Return this process's environment as a process in another folder needs it."""
    environment = dict(os.environ)
    _keep_package_importable(environment)
    return environment


def _keep_package_importable(environment: dict[str, str]) -> None:
    # Ranks stand in another folder: relative entries would mean something else there, and a checkout that is found
    # only because the user stands in it would not be found at all.
    given = environment.get("PYTHONPATH", "")
    entries = [os.path.abspath(entry) for entry in given.split(os.pathsep) if entry]
    root = str(Path(__file__).resolve().parents[2])
    if root not in entries and not _is_installed(root):
        entries.append(root)
    if entries:
        environment["PYTHONPATH"] = os.pathsep.join(entries)


def _is_installed(root: str) -> bool:
    """Tell whether a new interpreter finds this package by itself: installed as it is, or as an editable install."""
    if any(Path(root) == Path(entry) for entry in sys.path if entry.endswith(("site-packages", "dist-packages"))):
        return True
    try:
        recorded = distribution("turbo_hydra").read_text("direct_url.json")
    except PackageNotFoundError:
        return False
    return recorded is not None and json.loads(recorded).get("url") == Path(root).as_uri()
