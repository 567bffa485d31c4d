# SPDX-License-Identifier: Apache-2.0
"""The work of the launcher. Hydra's scan leaves out modules whose name starts with an underscore."""

from __future__ import annotations

import functools
import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import JobReturn, JobStatus, configure_log, filter_overrides, run_job, setup_globals
from hydra.types import TaskFunction
from omegaconf import DictConfig, OmegaConf, open_dict

from hydra_plugins.turbo_hydra import _finished, _foreign, _side_by_side
from turbo_hydra.engine.errors import TurboHydraError
from turbo_hydra.launch import early
from turbo_hydra.launch.outcome import JobFailed
from turbo_hydra.launch.secrets import hide_in_folder, hide_override
from turbo_hydra.launch.slots import Slots

if TYPE_CHECKING:
    from hydra_plugins.turbo_hydra.torchrun_launcher import TorchrunLauncher

log = logging.getLogger(__name__)


def launch(launcher: TorchrunLauncher, job_overrides: Sequence[Sequence[str]], first: int) -> list[JobReturn]:
    """Compose every job, then run them; a failure is told when it happens and ends no other job."""
    context = launcher.hydra_context
    assert context is not None
    assert launcher.task_function is not None
    assert launcher.config is not None
    setup_globals()
    settings = launcher.config.hydra
    configure_log(settings.hydra_logging, settings.verbose)
    folder = Path(str(settings.sweep.dir))
    folder.mkdir(parents=True, exist_ok=True)
    hide_in_folder(folder)
    # All of them before the first runs: whoever edits a file during a sweep changes none of its jobs.
    jobs = list(_composed(launcher, job_overrides, first))
    _refuse(launcher.task_function, jobs, first)
    log.info("%d job%s, results in %s", len(jobs), "" if len(jobs) == 1 else "s", folder)
    task = launcher.task_function
    if not _starts_ranks(task):
        task = _foreign.RankTask(task, launcher.runtime, launcher.optimization)
    results: dict[int, JobReturn] = {}
    if launcher.resume:
        found = [_finished.find(job) for job in jobs]
        results = {index: result for index, result in enumerate(found) if result is not None}
        if results:
            log.info(
                "left out, since they succeeded before: %s", ", ".join(f"job {first + index}" for index in results)
            )

    def run(index: int) -> JobReturn:
        result = run_job(
            hydra_context=context,
            task_function=_telling(task, first + index),
            config=jobs[index],
            job_dir_key="hydra.sweep.dir",
            job_subdir_key="hydra.sweep.subdir",
        )
        configure_log(settings.hydra_logging, settings.verbose)
        _finished.note(jobs[index], result)
        return result

    def done(index: int, result: JobReturn) -> bool:
        results[index] = result
        return not (result.status == JobStatus.FAILED and launcher.stop_on_failure)

    def started(index: int) -> JobReturn:
        log.info("job %d: %s", first + index, _words(job_overrides[index]))
        return run(index)

    left = [index for index in range(len(jobs)) if index not in results]
    if launcher.parallel_jobs > 1:
        early.drop()  # a process that is forked from this one could not wait for it
        wanted = [_devices(jobs[index], None if _starts_ranks(launcher.task_function) else task) for index in left]
        _side_by_side.run(
            [functools.partial(started, index) for index in left],
            wanted,
            launcher.parallel_jobs,
            Slots(os.environ),
            lambda place, result: done(left[place], result),
        )
    else:
        for index in left:
            if not done(index, started(index)):
                break
    ended = [results[index] for index in sorted(results)]
    _summarise(results, len(jobs), first)
    return ended


def _starts_ranks(task: TaskFunction) -> bool:
    """Tell whether a task function starts its ranks itself, in a sweep as in a single run: turbo-train's does."""
    return getattr(task, "__module__", "").startswith("turbo_hydra.cli.")


def _devices(job: DictConfig, foreign: Any) -> int:
    """Return how many devices a job's ranks take."""
    runtime = OmegaConf.select(job, "runtime") if foreign is None else foreign.runtime
    return 0 if runtime.get("accelerator") == "cpu" else int(runtime.get("ranks") or 1)


def _telling(task_function: TaskFunction, number: int) -> TaskFunction:
    """Wrap a task function so that a failure is told at once, in the job's own log too."""

    @functools.wraps(task_function)
    def told(config: DictConfig) -> Any:
        try:
            return task_function(config)
        except Exception as problem:
            # The ranks' logs say why they failed, and a mistake of the user's needs no traceback.
            told_elsewhere = isinstance(problem, (JobFailed, TurboHydraError))
            log.error("job %d failed: %s", number, str(problem) or type(problem).__name__, exc_info=not told_elsewhere)
            raise

    return told


def _composed(launcher: TorchrunLauncher, job_overrides: Sequence[Sequence[str]], first: int) -> Iterator[DictConfig]:
    assert launcher.hydra_context is not None
    assert launcher.config is not None
    for number, overrides in enumerate(job_overrides, start=first):
        config: DictConfig = launcher.hydra_context.config_loader.load_sweep_config(launcher.config, list(overrides))
        with open_dict(config):
            config.hydra.job.id = number
            config.hydra.job.num = number
        yield config


def _refuse(task_function: TaskFunction, jobs: Sequence[DictConfig], first: int) -> None:
    """Let turbo-train's task look at every job before the first runs: a misspelt name is not told after hours."""
    check = getattr(sys.modules[task_function.__module__], "check", None) if _starts_ranks(task_function) else None
    if check is None:
        return
    problems: dict[str, list[int]] = {}
    for number, job in enumerate(jobs, start=first):
        HydraConfig.instance().set_config(job)
        try:
            check(job, HydraConfig.get())
        except TurboHydraError as problem:
            problems.setdefault(str(problem), []).append(number)
    if problems:
        told = (f"{said} (job {', '.join(map(str, numbers))})" for said, numbers in problems.items())
        raise TurboHydraError(f"no job was started: {'; '.join(told)}")


def _words(overrides: Sequence[str]) -> str:
    return " ".join(hide_override(text) for text in filter_overrides(overrides)) or "(no overrides)"


def _summarise(done: Mapping[int, JobReturn], asked: int, first: int) -> None:
    failed = [first + index for index, result in sorted(done.items()) if result.status == JobStatus.FAILED]
    if not failed:
        return
    left_out = asked - len(done)
    log.error(
        "%d of %d jobs failed: %s%s",
        len(failed),
        asked,
        ", ".join(f"job {number}" for number in failed),
        f"; {left_out} left out (hydra.launcher.stop_on_failure)" if left_out else "",
    )
