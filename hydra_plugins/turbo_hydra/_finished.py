# SPDX-License-Identifier: Apache-2.0
"""Jobs of a sweep that are done already, so that a sweep that was interrupted goes on where it was."""

from __future__ import annotations

import base64
import copy
import hashlib
import os
import pickle
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import JobReturn, JobRuntime, JobStatus
from omegaconf import DictConfig, OmegaConf, open_dict

from turbo_hydra.launch import files

NAME = "done.json"


def find(config: DictConfig) -> JobReturn | None:
    """Return what a job with this config gave in an earlier run of the sweep; None if it did not succeed there."""
    record = files.read_json(_path(config))
    if not isinstance(record, dict) or record.get("config") != _fingerprint(config):
        return None
    value = record.get("returned")
    try:
        returned = None if value is None else pickle.loads(base64.b64decode(value))
    except Exception:
        return None  # its class has changed: run it again
    hydra = copy.deepcopy(config)
    with open_dict(hydra):
        for key in [key for key in hydra if key != "hydra"]:
            del hydra[key]
    return JobReturn(
        overrides=list(config.hydra.overrides.task),
        cfg=_without_hydra(config),
        hydra_cfg=hydra,
        working_dir=os.getcwd(),
        task_name=JobRuntime.instance().get("name"),
        status=JobStatus.COMPLETED,
        _return_value=returned,
    )


def note(config: DictConfig, result: JobReturn) -> None:
    """Write down that a job succeeded, and what it returned if that can be written."""
    if result.status != JobStatus.COMPLETED:
        return
    try:
        returned = base64.b64encode(pickle.dumps(result._return_value)).decode()
    except Exception:
        returned = None
    files.write_json(_path(config), {"config": _fingerprint(config), "returned": returned})


def _path(config: DictConfig) -> Path:
    before = HydraConfig.instance().cfg
    HydraConfig.instance().set_config(config)
    try:
        folder = Path(str(OmegaConf.select(config, "hydra.sweep.dir")))
        return folder / str(OmegaConf.select(config, "hydra.sweep.subdir")) / "turbo" / NAME
    finally:
        HydraConfig.instance().cfg = before


def _fingerprint(config: DictConfig) -> str:
    text = OmegaConf.to_yaml(_without_hydra(config), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _without_hydra(config: DictConfig) -> Any:
    found = copy.deepcopy(config)
    with open_dict(found):
        del found["hydra"]
    return found
