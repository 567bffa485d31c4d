# SPDX-License-Identifier: Apache-2.0
"""The launcher `torchrun`: runs a sweep's jobs in turn or side by side, each with the ranks that its settings ask for.

Light to import: Hydra imports every plugin at each start of any of its applications.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hydra.core.utils import JobReturn
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from hydra_plugins.turbo_hydra import config as _settings  # noqa: F401 - it makes the settings known to Hydra


class TorchrunLauncher(Launcher):
    """Runs the jobs of a sweep; see `TorchrunLauncherConf` for the parameters."""

    def __init__(
        self,
        stop_on_failure: bool = False,
        parallel_jobs: int = 1,
        resume: bool = False,
        optimization: str | None = None,
        runtime: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.stop_on_failure = stop_on_failure
        self.parallel_jobs = parallel_jobs
        self.resume = resume
        self.optimization = optimization
        self.runtime = runtime or {}
        self.config: DictConfig | None = None
        self.task_function: TaskFunction | None = None
        self.hydra_context: HydraContext | None = None

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Take what Hydra knows of the application."""
        self.config = config
        self.hydra_context = hydra_context
        self.task_function = task_function

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Run the jobs of one batch.

        Parameters
        ----------
        job_overrides : sequence of sequence of str
            The overrides of each job.
        initial_job_idx : int
            The number of the first.

        Returns
        -------
        sequence of JobReturn
            One for each job that was started; a failed one raises when its value is read.
        """
        from hydra_plugins.turbo_hydra import _core

        return _core.launch(self, job_overrides, initial_job_idx)
