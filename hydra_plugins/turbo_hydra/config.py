# SPDX-License-Identifier: Apache-2.0
"""Settings of the plugins, as `hydra/launcher=torchrun` brings them.

No `from __future__ import annotations`: Hydra's scan executes this module before it is in `sys.modules`, where a
dataclass looks up annotations that are texts.
"""

from dataclasses import dataclass, field
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import OmegaConf


@dataclass
class TorchrunLauncherConf:
    """Settings of a sweep's launcher; how many ranks a job of turbo-train has stands in the job's own `runtime`.

    Parameters
    ----------
    stop_on_failure : bool
        Whether the jobs after a failed one are left out.
    parallel_jobs : int
        How many jobs run at a time, each with devices of its own.
    resume : bool
        Whether jobs that succeeded in an earlier sweep into the same folder, with the same settings, are left out.
    optimization : str or None
        For applications that are not turbo-train: the optimization config of their ranks, a file or a name.
    runtime : dict
        For applications that are not turbo-train: as its group `runtime`.
    """

    _target_: str = "hydra_plugins.turbo_hydra.torchrun_launcher.TorchrunLauncher"
    stop_on_failure: bool = False
    parallel_jobs: int = 1
    resume: bool = False
    optimization: str | None = None
    runtime: dict[str, Any] = field(default_factory=dict)


_node = OmegaConf.structured(TorchrunLauncherConf)
# `hydra.launcher.runtime.ranks=2` needs no `+`; what is no setting of a runtime is refused when the sweep starts.
OmegaConf.set_struct(_node.runtime, False)
ConfigStore.instance().store(group="hydra/launcher", name="torchrun", node=_node, provider="turbo_hydra")
