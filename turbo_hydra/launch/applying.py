# SPDX-License-Identifier: Apache-2.0
"""The engine's part in a rank, and in the children that it starts afresh. A job without optimizations imports none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from turbo_hydra.launch import paths
from turbo_hydra.launch.job import Job, setting

if TYPE_CHECKING:
    from turbo_hydra.engine.report import OptimizationReport


# The meter's observers: no optimization, so no config names them, and `optimization.enabled=false` leaves them there.
OBSERVERS = "turbo_hydra.measure.catalog"


def apply_job(job: Job, rank: int, log_report: bool, metered: bool = False) -> OptimizationReport | None:
    """Apply the job's optimizations in this process; None if there is nothing to apply.

    Parameters
    ----------
    job, rank, log_report : Job, int, bool
        As for `turbo_hydra.api.apply_config`.
    metered : bool
        Whether a meter will be installed in this process, which sees the steps through observers.

    Raises
    ------
    turbo_hydra.engine.errors.TurboHydraError
        As `turbo_hydra.apply` does; `StrictStop` where a strict run may not go on.
    """
    if not job.optimization and not metered:
        return None
    from turbo_hydra import api
    from turbo_hydra.config import OptimizationConfig, load_catalogs

    source = None if job.optimization_config_path is None else Path(job.optimization_config_path)
    config = OptimizationConfig.from_mapping(job.optimization, source) if job.optimization else OptimizationConfig()
    registry = load_catalogs(config)
    if metered:
        registry.load(OBSERVERS)
    if metered and job.measure.get("profile"):
        from turbo_hydra.measure import ranges

        ranges.install()
    return api.apply_config(
        config,
        run_id=job.run_id,
        repository=paths.repository(job),
        accelerator=setting(job.runtime, "accelerator", "auto"),
        runtime_config_path=job.runtime_config_path,
        log_report=log_report,
        rank=rank,
        registry=registry,
    )


def late_binder(job: Job) -> Callable[[], None]:
    """Return what is called after each statement of the script: writes members whose name has just been bound."""
    if not job.optimization:
        return lambda: None
    from turbo_hydra import api

    return lambda: api.bind_late("__main__")
