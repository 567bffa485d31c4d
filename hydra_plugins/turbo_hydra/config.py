# SPDX-License-Identifier: Apache-2.0
"""Settings of the plugins, as `hydra/launcher=torchrun` brings them.

No `from __future__ import annotations`: Hydra's scan executes this module before it is in `sys.modules`, where a
dataclass looks up annotations that are texts.
"""

from dataclasses import dataclass

from hydra.core.config_store import ConfigStore


@dataclass
class TorchrunLauncherConf:
    """Settings of a sweep's launcher; how many ranks a job has stands in the job's own `runtime`.

    Parameters
    ----------
    stop_on_failure : bool
        Whether the jobs after a failed one are left out.
    """

    _target_: str = "hydra_plugins.turbo_hydra.torchrun_launcher.TorchrunLauncher"
    stop_on_failure: bool = False


ConfigStore.instance().store(group="hydra/launcher", name="torchrun", node=TorchrunLauncherConf, provider="turbo_hydra")
