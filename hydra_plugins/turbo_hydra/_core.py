# SPDX-License-Identifier: Apache-2.0
"""The work of the launcher. Hydra's scan leaves out modules whose name starts with an underscore."""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.utils import JobReturn, JobStatus, configure_log, filter_overrides, run_job, setup_globals
from hydra.types import TaskFunction
from omegaconf import DictConfig, open_dict

from turbo_hydra.launch.outcome import JobFailed
from turbo_hydra.launch.secrets import hide_in_folder, hide_override

if TYPE_CHECKING:
    from hydra_plugins.turbo_hydra.torchrun_launcher import TorchrunLauncher

log = logging.getLogger(__name__)


def launch(launcher: TorchrunLauncher, job_overrides: Sequence[Sequence[str]], first: int) -> list[JobReturn]:
    """Compose every job, then run them in turn; a failure is told when it happens and ends no other job."""
    assert launcher.hydra_context is not None
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
    log.info("%d job%s, results in %s", len(jobs), "" if len(jobs) == 1 else "s", folder)
    done: list[JobReturn] = []
    for number, (job, overrides) in enumerate(zip(jobs, job_overrides, strict=True), start=first):
        log.info("job %d: %s", number, _words(overrides))
        result = run_job(
            hydra_context=launcher.hydra_context,
            task_function=_telling(launcher.task_function, number),
            config=job,
            job_dir_key="hydra.sweep.dir",
            job_subdir_key="hydra.sweep.subdir",
        )
        configure_log(settings.hydra_logging, settings.verbose)
        done.append(result)
        if result.status == JobStatus.FAILED and launcher.stop_on_failure:
            break
    _summarise(done, len(jobs), first)
    return done


def _telling(task_function: TaskFunction, number: int) -> TaskFunction:
    """Wrap a task function so that a failure is told at once, in the job's own log too.

    Our own task function starts the ranks itself, in a sweep as in a single run; others run in this process.
    """

    @functools.wraps(task_function)
    def told(config: DictConfig) -> Any:
        try:
            return task_function(config)
        except Exception as problem:
            # The ranks' logs say why a job of ours failed; of another application's there is only the traceback.
            ours = isinstance(problem, JobFailed)
            log.error("job %d failed: %s", number, str(problem) or type(problem).__name__, exc_info=not ours)
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


def _words(overrides: Sequence[str]) -> str:
    return " ".join(hide_override(text) for text in filter_overrides(overrides)) or "(no overrides)"


def _summarise(done: Sequence[JobReturn], asked: int, first: int) -> None:
    failed = [first + index for index, result in enumerate(done) if result.status == JobStatus.FAILED]
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
