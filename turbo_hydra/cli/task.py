# SPDX-License-Identifier: Apache-2.0
"""The task function of turbo-train: one composed job, run or refused. RUN and MULTIRUN are alike."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import secrets
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hydra.conf import HydraConf
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from turbo_hydra.cli import optimization
from turbo_hydra.cli.messages import sentence
from turbo_hydra.cli.sources import Sources
from turbo_hydra.engine.errors import TurboHydraError
from turbo_hydra.launch.job import Job
from turbo_hydra.launch.outcome import WRONG_USE, JobFailed
from turbo_hydra.launch.secrets import hide_in_folder

FULL_ERROR = "HYDRA_FULL_ERROR"


@dataclass
class State:
    """What the command must know after Hydra has returned, which hands back no value of the task.

    Parameters
    ----------
    full_error : str or None
        HYDRA_FULL_ERROR as the user set it; the command overrides it for itself.
    started : bool
        Whether a job was begun: later errors are not mistakes on the command line.
    statuses : list of int
        Exit status of each job so far.
    command : list of str or None
        The command that `turbo-train run --` was given, in place of a model's script.
    """

    full_error: str | None = None
    started: bool = False
    statuses: list[int] = field(default_factory=list)
    command: list[str] | None = None


state = State()


def train(cfg: DictConfig) -> int:
    """Run one job; returns its exit status, or raises `JobFailed` in a sweep so that Hydra sees it."""
    state.started = True
    ours = os.environ.pop(FULL_ERROR, None)
    if state.full_error is not None:
        os.environ[FULL_ERROR] = state.full_error
    hydra = HydraConfig.get()
    try:
        status = _run(cfg, hydra)
    except (TurboHydraError, OmegaConfBaseException) as problem:
        from turbo_hydra.cli.train import fail

        status = fail(sentence(problem))
    finally:
        if ours is not None:
            os.environ[FULL_ERROR] = ours
    state.statuses.append(status)
    if status and hydra.mode == RunMode.MULTIRUN:
        raise JobFailed(status, str(hydra.runtime.output_dir))
    return status


def check(cfg: DictConfig, hydra: HydraConf) -> None:
    """Refuse a job of a sweep whose groups or options are unknown, before the first job runs.

    Raises
    ------
    TurboHydraError
        As the job itself would.
    """
    try:
        data: Any = OmegaConf.to_container(cfg.optimization, resolve=True, enum_to_str=True)
    except OmegaConfBaseException:
        return  # refers to what a job has only when it runs, and is told there
    optimization.resolve(data, hydra, Path(hydra.runtime.cwd), tell=False)


def _run(cfg: DictConfig, hydra: HydraConf) -> int:
    from turbo_hydra import launch

    if hydra.output_subdir is not None:
        hide_in_folder(Path(hydra.runtime.output_dir, hydra.output_subdir))
    return launch.run(dataclasses.replace(build(cfg, hydra), command=state.command))


def build(cfg: DictConfig, hydra: HydraConf) -> Job:
    """The job that a composed config describes, resolved to plain data.

    Raises
    ------
    TurboHydraError
        If a setting is wrong; nothing has been started.
    """
    data: Any = OmegaConf.to_container(cfg, resolve=True, throw_on_missing=True, enum_to_str=True)
    config = optimization.resolve(data["optimization"], hydra, Path(hydra.runtime.cwd))
    runtime = Sources.of(hydra).chosen("runtime")
    _check_folder(data["runtime"], hydra)
    return Job(
        run_id=_run_id(data["runtime"], hydra),
        output_dir=str(Path(hydra.runtime.output_dir).absolute()),
        cwd=str(hydra.runtime.cwd),
        model=data["model"],
        runtime=data["runtime"],
        optimization=config.to_dict(),
        optimization_config_path=str(config.path) if config.path else None,
        runtime_config_path=str(runtime) if runtime else None,
        measure=data["measure"],
    )


def _check_folder(runtime: dict[str, Any], hydra: HydraConf) -> None:
    """Refuse several nodes that would each choose a folder of its own."""
    key = "hydra.sweep.dir" if hydra.mode == RunMode.MULTIRUN else "hydra.run.dir"
    said = any(item.partition("=")[0] == key for item in hydra.overrides.hydra)
    if runtime["nodes"] > 1 and not runtime["slurm"]["enabled"] and not said:
        raise TurboHydraError(
            f"with runtime.nodes={runtime['nodes']} set {key}=FOLDER, the same on each node, to a folder that all of "
            "them share"
        )


def _run_id(runtime: dict[str, Any], hydra: HydraConf) -> str:
    meeting = runtime["rendezvous"]["id"]
    if meeting is not None:
        return str(meeting)
    if runtime["nodes"] > 1 and not runtime["slurm"]["enabled"]:
        # Each node composes for itself; what they have in common is the folder.
        return f"nodes-{hashlib.sha256(str(hydra.runtime.output_dir).encode()).hexdigest()[:12]}"
    number = f"-{hydra.job.num}" if hydra.mode == RunMode.MULTIRUN else ""
    return f"{time.strftime('%Y%m%dT%H%M%S')}-{secrets.token_hex(4)}{number}"


__all__ = ["State", "WRONG_USE", "build", "state", "train"]
