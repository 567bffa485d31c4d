# SPDX-License-Identifier: Apache-2.0
"""What a report of a fault needs: facts about this machine and installation, without secrets."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import sys
from pathlib import Path
from typing import Any

from turbo_hydra.config.catalog import ENTRY_POINTS as CONFIGS
from turbo_hydra.config.catalog import OptimizationConfigCatalog
from turbo_hydra.config.installed import ENTRY_POINTS as CATALOGS
from turbo_hydra.config.installed import all_catalogs
from turbo_hydra.engine.distributions import installed_version
from turbo_hydra.launch.caches import VARIABLES, default_folder
from turbo_hydra.launch.secrets import HIDDEN, is_secret

# In an address, what stands before the host.
_CREDENTIALS = re.compile(r"(\w+://)[^/@\s]*@")
DISTRIBUTIONS = (
    *("turbo_hydra", "hydra-core", "omegaconf", "torch", "triton", "numpy", "transformers", "lightning", "mmcv-full"),
    *("rich", "typer", "packaging", "platformdirs", "filelock", "matplotlib"),
)
PREFIXES = (
    "TURBO_HYDRA",
    "HYDRA_",
    "TORCH",
    "PYTORCH",
    "CUDA_",
    "HIP_",
    "ROCR_",
    "HSA_",
    "NCCL_",
    "GLOO_",
    "OMP_",
    "TRITON",
)


def facts() -> dict[str, dict[str, Any]]:
    """Sections of names and values."""
    return {
        "python": {
            "version": platform.python_version(),
            "executable": sys.executable,
            "platform": platform.platform(),
            "cpus": len(os.sched_getaffinity(0)),
        },
        "versions": {name: installed_version(name) or "not installed" for name in DISTRIBUTIONS},
        "devices": _devices(),
        "catalogs": {name: _state(name) for name in all_catalogs()},
        "configs": {str(folder): "folder" for folder in OptimizationConfigCatalog().folders},
        "entry points": {
            f"{group}: {entry.name}": entry.value
            for group in (CATALOGS, CONFIGS, "hydra.plugins")
            for entry in importlib.metadata.entry_points(group=group)
        },
        "caches": {
            "of runs": str(default_folder()),
            **{name: os.environ.get(name, "not set") for name in VARIABLES},
        },
        "environment": {
            name: HIDDEN if is_secret(name) else _CREDENTIALS.sub(rf"\g<1>{HIDDEN}@", value)
            for name, value in sorted(os.environ.items())
            if name.startswith(PREFIXES)
        },
    }


def _state(catalog: str) -> str:
    from turbo_hydra.config import load
    from turbo_hydra.engine.errors import TurboHydraError

    try:
        return f"{len(load([catalog]).groups)} groups"
    except TurboHydraError as problem:
        return str(problem)


def _devices() -> dict[str, str]:
    """Device files, as the drivers make them: asking torch would take seconds and might itself be what is broken."""
    found = {
        "nvidia": sorted(path.name for path in Path("/dev").glob("nvidia[0-9]*")),
        "kfd (HIP)": sorted(path.name for path in Path("/dev").glob("kfd")),
        "dri": sorted(path.name for path in Path("/dev/dri").glob("renderD*")) if Path("/dev/dri").is_dir() else [],
    }
    return {name: ", ".join(files) or "none" for name, files in found.items()}
