# SPDX-License-Identifier: Apache-2.0
"""A run, resolved: what goes from the command to the agent and the ranks, once, as plain data."""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from turbo_hydra.engine.errors import TurboHydraError
from turbo_hydra.launch import files, secrets

SCHEMA_VERSION = "turbo_hydra/job/v1"


class JobError(TurboHydraError):
    """A setting of the run is wrong, or what it names is not there; found before a rank starts."""


@dataclass(frozen=True)
class Job:
    """One run of a model's script.

    Parameters
    ----------
    run_id : str
        Names the run; equal on all ranks.
    output_dir : str
        The run's folder; everything of ours goes into its folder `turbo`.
    cwd : str
        Where the user stood: relative paths in settings start there.
    model, runtime, optimization, measure : dict
        The groups of the configuration, resolved.
    optimization_config_path : str or None
        The generated file behind `optimization`.
    runtime_config_path : str or None
        The file behind `runtime`.
    command : list of str or None
        What the user typed after `turbo-train run --`; its own launcher then starts the ranks.
    task : str or None
        For a Hydra application of somebody else's: `script` where its script is executed, `entry` where its task is
        called by an entry of ours.
    """

    run_id: str
    output_dir: str
    cwd: str
    model: dict[str, Any] = field(default_factory=dict)
    runtime: dict[str, Any] = field(default_factory=dict)
    optimization: dict[str, Any] = field(default_factory=dict)
    optimization_config_path: str | None = None
    runtime_config_path: str | None = None
    measure: dict[str, Any] = field(default_factory=dict)
    command: list[str] | None = None
    task: str | None = None

    @property
    def folder(self) -> Path:
        """The folder of job.json, the reports and the ranks."""
        return Path(self.output_dir) / "turbo"

    @property
    def path(self) -> Path:
        """Where the job is written: `job.json`; nodes beside the first write their own."""
        node = self.runtime.get("node_rank") or 0
        return self.folder / ("job.json" if node == 0 else f"job.node{node}.json")

    def rank_folder(self, rank: int) -> Path:
        """Return the folder of one rank's reports and logs."""
        return self.folder / "ranks" / str(rank)

    def write(self) -> Path:
        """Write `turbo/job.json`, without the values of secret variables: those reach the ranks by inheritance."""
        data: dict[str, Any] = {"schema_version": SCHEMA_VERSION, **dataclasses.asdict(self)}
        environment = data["runtime"].get("environment") or {}
        settings = environment.get("set") or {}
        withheld = sorted(name for name in settings if secrets.is_secret(name))
        if withheld:
            environment["set"] = {name: value for name, value in settings.items() if name not in withheld}
            environment["withheld"] = withheld
        try:
            text = json.dumps(data, indent=1)
        except (TypeError, ValueError) as problem:
            raise JobError(f"the settings of the run must be plain data, found {problem}") from None
        files.write_text(self.path, text + "\n")
        return self.path

    @classmethod
    def read(cls, path: str | Path) -> Job:
        """Read a job that `write` wrote.

        Raises
        ------
        JobError
            If the file is missing, is no job, or is one of another version.
        """
        try:
            data = json.loads(Path(path).read_text(encoding="utf-8"))
        except OSError as problem:
            raise JobError(f"cannot read the job file {path}: {problem.strerror}") from None
        except ValueError as problem:
            raise JobError(f"the job file {path} is not JSON: {problem}") from None
        found = data.get("schema_version") if isinstance(data, dict) else None
        if found != SCHEMA_VERSION:
            raise JobError(f"the job file {path} has schema_version {found!r}, expected {SCHEMA_VERSION!r}")
        names = {item.name for item in dataclasses.fields(cls)}
        return cls(**{name: value for name, value in data.items() if name in names})


def setting(data: Mapping[str, Any], path: str, default: Any = None) -> Any:
    """Return the value under a dotted path of nested settings; what is absent or null gives `default`."""
    value: Any = data
    for key in path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return default if value is None else copy.deepcopy(value)


def number(data: Mapping[str, Any], path: str, default: float, least: float = 0.0) -> float:
    """Return a number out of nested settings.

    Raises
    ------
    JobError
        If the value is no number, or smaller than `least`.
    """
    value = setting(data, path, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value < least:
        raise JobError(f"'runtime.{path}' must be a number, {least:g} or more, found {value!r}")
    return float(value)


def count(data: Mapping[str, Any], path: str, default: int, least: int = 0) -> int:
    """Return a whole number out of nested settings.

    Raises
    ------
    JobError
        If the value is no whole number, or smaller than `least`.
    """
    value = setting(data, path, default)
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise JobError(f"'runtime.{path}' must be a whole number, {least} or more, found {value!r}")
    return value
