# SPDX-License-Identifier: Apache-2.0
"""Types and defaults of every setting that turbo-train takes; the only module of this folder that needs Hydra.

The names here are an interface: a test freezes them.
"""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass, field
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig, OmegaConf

from turbo_hydra.config.schema import KIND, SCHEMA_VERSION

SCHEMA_NAME = "turbo_schema"


@dataclass
class ModelConf:
    """The training code: a script or module of a repository, run as it is."""

    name: str | None = None
    repo: str | None = None
    entry: str | None = None
    module: str | None = None
    cwd: str | None = None
    pythonpath: list[str] = field(default_factory=list)
    positional: list[Any] = field(default_factory=list)
    args: dict[str, Any] = field(default_factory=dict)
    arg_style: str = "space"
    extra: list[Any] = field(default_factory=list)
    batch: Any = None


@dataclass
class RendezvousConf:
    """Where the nodes of a run meet."""

    endpoint: str | None = None
    id: str | None = None
    is_host: bool | None = None
    timeout: float = 600.0


@dataclass
class EnvironmentConf:
    """Variables of the ranks: what is inherited, then `unset`, then `set`."""

    set: dict[str, Any] = field(default_factory=dict)
    unset: list[str] = field(default_factory=list)


@dataclass
class AffinityConf:
    """Which CPUs and memory each rank uses."""

    numa: str | None = None
    cpus: list[str] | None = None
    numa_node: list[int] | None = None
    memory: str | None = None


@dataclass
class NetworkConf:
    """The interface between nodes; null takes that of the route to the rendezvous."""

    interface: str | None = None


@dataclass
class CachesConf:
    """Where compilers keep their results; null is a private folder of the user."""

    dir: str | None = None


@dataclass
class LogsConf:
    """What becomes of the ranks' output: `redirect` (all, none) to files, `tee` (ranks, all, none) to the terminal."""

    redirect: str = "all"
    tee: Any = field(default_factory=lambda: [0])


@dataclass
class TimeoutsConf:
    """Seconds until ranks must have begun, must have ended when told to, and may go without a line or a step."""

    start: float = 600.0
    shutdown: float = 10.0
    hang: float | None = None


@dataclass
class SlurmConf:
    """A run that Slurm starts: options of sbatch, lines of its script before the agents start, how often to ask."""

    enabled: bool = False
    options: dict[str, Any] = field(default_factory=dict)
    setup: list[str] = field(default_factory=list)
    poll: float = 2.0


@dataclass
class RuntimeConf:
    """How many processes run where, and what they find there."""

    ranks: int = 1
    nodes: int = 1
    node_rank: int | None = None
    rendezvous: RendezvousConf = field(default_factory=RendezvousConf)
    accelerator: str = "auto"
    environment: EnvironmentConf = field(default_factory=EnvironmentConf)
    affinity: AffinityConf = field(default_factory=AffinityConf)
    network: NetworkConf = field(default_factory=NetworkConf)
    caches: CachesConf = field(default_factory=CachesConf)
    logs: LogsConf = field(default_factory=LogsConf)
    restarts: int = 0
    timeouts: TimeoutsConf = field(default_factory=TimeoutsConf)
    omp_threads: int | None = None
    start_method: str | None = None
    children: bool = True
    slurm: SlurmConf = field(default_factory=SlurmConf)


@dataclass
class MetadataConf:
    """What an optimization config is called."""

    id: str | None = None
    version: str | None = None
    description: str | None = None


@dataclass
class ModelNameConf:
    """The model that an optimization config is for."""

    name: str | None = None


@dataclass
class CompatibilityConf:
    """What the evidence was taken at."""

    commits: list[str] = field(default_factory=list)
    dependencies: dict[str, str] = field(default_factory=dict)
    backends: list[str] = field(default_factory=list)
    allow_dirty: bool = True


@dataclass
class ShadowConf:
    """For how many calls of each member the original runs as well."""

    calls: int = 0


@dataclass
class OptimizationConf:
    """Groups on and off, their options, and what is done with them.

    `groups` has two levels and untyped leaves: OmegaConf 2.3 cannot merge a second file over typed ones, and the
    reader of the config refuses all that is no boolean anyway, with the place.
    """

    schema_version: str = SCHEMA_VERSION
    kind: str = KIND
    metadata: MetadataConf = field(default_factory=MetadataConf)
    model: ModelNameConf = field(default_factory=ModelNameConf)
    config: str | None = None
    catalogs: list[str] = field(default_factory=list)
    evidence: Any = None
    compatibility: CompatibilityConf = field(default_factory=CompatibilityConf)
    groups: dict[str, dict[str, Any]] = field(default_factory=dict)
    options: dict[str, dict[str, Any]] = field(default_factory=dict)
    enabled: bool = True
    only: list[str] | None = None
    disable: list[str] = field(default_factory=list)
    force: list[str] = field(default_factory=list)
    strict: bool = False
    shadow: ShadowConf = field(default_factory=ShadowConf)
    count_calls: Any = "auto"
    log_report: bool = False


@dataclass
class MeasureConf:
    """What is measured of each step."""

    enabled: bool = True
    interval: float = 2.0
    step_every: int = 1
    warmup: int | None = None
    profile: int = 0
    stop_after: int | None = None
    writers: list[str] = field(default_factory=list)
    progress: Any = "auto"
    progress_interval: float = 10.0
    peak_tflops: float | None = None


@dataclass
class AblationConf:
    """What `hydra/sweeper=ablation` sweeps, how often, and how it is judged."""

    strategy: str = "leave_one_out"
    rows: Any = None
    groups: Any = None
    repeats: int = 6
    looks: list[int] = field(default_factory=lambda: [3, 6, 12])
    steps: int | None = 40
    loss_steps: int = 20
    close: float = 1e-4
    smallest: float = 0.01
    error: float = 0.05
    metric: str = "step"
    budget: Any = None
    parallel_jobs: int = 1
    seed: int = 0
    page: str | None = None


@dataclass
class TrainConf:
    """All settings of one job."""

    model: ModelConf = field(default_factory=ModelConf)
    runtime: RuntimeConf = field(default_factory=RuntimeConf)
    optimization: OptimizationConf = field(default_factory=OptimizationConf)
    measure: MeasureConf = field(default_factory=MeasureConf)
    ablation: AblationConf = field(default_factory=AblationConf)


_OPEN = (
    "model.args",
    "runtime.environment.set",
    "runtime.slurm.options",
    "optimization.groups",
    "optimization.options",
)
_suffix = f"{os.getpid():x}{secrets.token_hex(2)}"


def schema() -> DictConfig:
    """The node whose types and defaults all files are merged into; trees of free names take new keys without `+`."""
    node: DictConfig = OmegaConf.structured(TrainConf)
    for key in _OPEN:
        OmegaConf.set_struct(OmegaConf.select(node, key), False)
    return node


def register() -> None:
    """Make the schema known to Hydra, and the resolver `turbo.unique` that names output folders.

    Two runs that start in one second get two folders: the suffix differs from process to process.
    """
    ConfigStore.instance().store(name=SCHEMA_NAME, node=schema(), provider="turbo_hydra")
    if not OmegaConf.has_resolver("turbo.unique"):
        OmegaConf.register_new_resolver("turbo.unique", lambda: _suffix)
