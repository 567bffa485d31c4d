# SPDX-License-Identifier: Apache-2.0
"""The sweeper `ablation`: runs a job with its groups on and off, and says which of them pay.

Light to import: Hydra imports every plugin at each start of any of its applications.
"""

from __future__ import annotations

from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

# The sweeper has no settings of its own.
ConfigStore.instance().store(
    group="hydra/sweeper",
    name="ablation",
    node={"_target_": "hydra_plugins.turbo_hydra.ablation_sweeper.AblationSweeper"},
    provider="turbo_hydra",
)


class AblationSweeper(Sweeper):
    """Sweeps over groups; what is swept stands in the job's own settings, under `ablation`."""

    def __init__(self) -> None:
        super().__init__()
        self.config: DictConfig | None = None
        self.task_function: TaskFunction | None = None
        self.hydra_context: HydraContext | None = None

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Take what Hydra knows of the application."""
        self.config = config
        self.hydra_context = hydra_context
        self.task_function = task_function

    def sweep(self, arguments: list[str]) -> Any:
        """Run the rows.

        Parameters
        ----------
        arguments : list of str
            The overrides that were typed.

        Returns
        -------
        dict
            What `ablation.json` holds.
        """
        from turbo_hydra.sweep import sweeping

        assert self.config is not None
        assert self.task_function is not None
        assert self.hydra_context is not None
        return sweeping.sweep(self.hydra_context, self.task_function, self.config, arguments)
