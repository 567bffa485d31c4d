# SPDX-License-Identifier: Apache-2.0
"""A whole sweep, out of what Hydra composed: what `hydra/sweeper=ablation` does."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf, open_dict

from turbo_hydra.config import OptimizationConfig
from turbo_hydra.engine.registry import Registry
from turbo_hydra.launch.job import Job
from turbo_hydra.launch.outcome import JobFailed
from turbo_hydra.sweep import basis as bases
from turbo_hydra.sweep import files, page, planning, tables
from turbo_hydra.sweep.bisect import bisect
from turbo_hydra.sweep.campaign import Campaign, spoken
from turbo_hydra.sweep.outcome import FILE, to_data
from turbo_hydra.sweep.result import Result
from turbo_hydra.sweep.rows import Design, Row, Toggle, design, factorial_rows
from turbo_hydra.sweep.running import Runner, shared_threads
from turbo_hydra.sweep.settings import AblationError, AblationSettings
from turbo_hydra.sweep.store import Store
from turbo_hydra.sweep.verdicts import Judgement

Build = Callable[[DictConfig, Any], Job]
# More runs than anybody waits for: a mistake.
MOST_ROWS = 1024
# Hydra's own announcements of each job; the sweep has its own line for it.
_QUIET = {"version": 1, "disable_existing_loggers": False, "handlers": {}, "root": {"level": "WARNING", "handlers": []}}


class _Application:
    """The running application's way from a composed config to a job; only turbo-train has one."""

    build: Build | None = None


def register(build: Build) -> None:
    """Tell how the running application makes a job of a composed config."""
    _Application.build = build


def make_launcher(context: HydraContext, task_function: TaskFunction, config: DictConfig) -> Launcher:
    """The launcher that Hydra was told to use."""
    from hydra.core.plugins import Plugins

    return Plugins.instance().instantiate_launcher(hydra_context=context, task_function=task_function, config=config)


def sweep(context: HydraContext, task_function: TaskFunction, config: DictConfig, arguments: Sequence[str]) -> Any:
    """Run a sweep and print its tables.

    Returns
    -------
    dict
        What `ablation.json` holds.

    Raises
    ------
    AblationError
        If it cannot be made; nothing has run then.
    JobFailed
        At its end, if a row failed.
    """
    return _Sweep(context, task_function, config, arguments).conduct()


class _Sweep:
    def __init__(
        self, context: HydraContext, task_function: TaskFunction, config: DictConfig, arguments: Sequence[str]
    ) -> None:
        _refuse_sweeps(arguments)
        self._context = context
        self._task_function = task_function
        self._arguments = list(arguments)
        self._config = config.copy()
        composed = context.config_loader.load_sweep_config(config, [*arguments, "measure.enabled=true"])
        self._job = _job(composed)
        node: Any = OmegaConf.to_container(composed.ablation, resolve=True)
        self._settings = AblationSettings.from_mapping(node)
        optimization, registry = planning.config_of(self._job)
        toggles = planning.toggles(optimization, registry, self._settings)
        self._notes: list[str] = _always_on(optimization, registry, toggles)
        self._one_at_a_time_on_devices()
        evidence = self._job.optimization.get("evidence")
        paths = [Path(str(path)) for path in ([evidence] if isinstance(evidence, str) else evidence or [])]
        basis = bases.basis(self._job, self._settings, toggles, registry, paths)
        folder = self._folder(composed, bases.key(basis))
        self._store = Store(folder, basis, self._settings.loss_steps)
        self._design = self._make_design(toggles)

    def conduct(self) -> dict[str, Any]:
        with self._store.locked():
            self._say(f"results go to {self._store.folder}")
            data = self._bisect() if isinstance(self._design, tuple) else self._campaign(self._design)
            missing = files.write(self._store.folder, data)
        tables.show(data, str(self._store.folder / FILE), sys.stdout)
        if missing:
            self._say(missing)
        if self._settings.page is not None:
            self._say(page.write(Path(self._job.cwd, self._settings.page), data))
        failed = [row["name"] for row in data["rows"] if row["failed"]]
        if failed:
            raise JobFailed(1, str(self._store.folder))
        return data

    # What there is to run

    def _make_design(self, toggles: tuple[Toggle, ...]) -> Design | tuple[Toggle, ...]:
        strategy = self._settings.strategy
        if strategy == "bisect":
            return design("one_at_a_time", toggles).toggles  # in the order of their dependencies
        rows = factorial_rows(toggles)
        if strategy == "factorial" and rows > MOST_ROWS:
            raise AblationError(
                f"factorial of {len(toggles)} groups: {rows} rows; name fewer groups by ablation.groups"
            )
        made = design(strategy, toggles, self._settings.rows)
        self._say(
            f"{strategy} of {len(toggles)} groups: {len(made.rows)} rows (the baseline twice), at most "
            f"{self._settings.repeats} rounds, {len(made.rows) * self._settings.repeats} runs"
        )
        return made

    def _campaign(self, made: Design) -> dict[str, Any]:
        self._resume(made.rows, self._settings.repeats)
        self._tell_of_dependencies(made.rows)
        campaign = Campaign(
            made,
            self._settings,
            self._store,
            self._runner(made.toggles),
            self._say,
            after=lambda judgement: self._write_so_far(made, judgement),
        )
        ended = campaign.conduct()
        return self._data(made, ended.judgement, ended.complete, [*self._notes, *ended.notes])

    def _write_so_far(self, made: Design, judgement: Judgement) -> None:
        files.write(self._store.folder, self._data(made, judgement, False, self._notes), drawn=False)

    def _bisect(self) -> dict[str, Any]:
        toggles = self._design if isinstance(self._design, tuple) else ()
        runner = self._runner(toggles)
        self._say(f"bisect of {len(toggles)} groups: about {4 + max(1, len(toggles).bit_length())} runs")

        def run(row: Row) -> Result:
            self._store.load([row], 1)
            if not self._store.has(row, 0):
                result = runner([(row, 0)])[0]
                said = f"  FAILED: {result.reason}" if not result.ok else ""
                self._say(f"{row.name}  ({spoken(result.seconds)}){said}")
            return self._store.results[row.name, 0]

        found = bisect(toggles, run, self._settings.close)
        made = found.design(toggles)
        return self._data(made, None, True, [*self._notes, *found.notes], culprit=found.culprit)

    def _data(
        self, made: Design, judgement: Judgement | None, complete: bool, notes: Sequence[str], **more: Any
    ) -> dict[str, Any]:
        return to_data(
            made,
            self._store.results,
            self._settings,
            judgement,
            model=str(self._job.model.get("name") or "model"),
            basis=self._store.basis,
            complete=complete,
            notes=notes,
            **more,
        )

    # How it is run

    def _runner(self, toggles: Sequence[Toggle]) -> Runner:
        with open_dict(self._config):
            self._config.hydra.sweep.dir = str(self._store.folder)
            self._config.hydra.hydra_logging = _QUIET
        launcher = make_launcher(self._context, self._task_function, self._config)
        return Runner(
            self._store,
            lambda words, number: launcher.launch([list(words)], initial_job_idx=number),
            toggles,
            self._settings,
            [*self._arguments, *shared_threads(self._job.runtime, self._settings.parallel_jobs)],
        )

    def _resume(self, rows: Sequence[Row], rounds: int) -> None:
        self._store.load(rows, rounds)
        if self._store.found:
            self._say(
                f"{self._store.found} runs are there from an earlier sweep and are not repeated; "
                "hydra.sweep.dir=FOLDER begins anew elsewhere"
            )

    def _tell_of_dependencies(self, rows: Sequence[Row]) -> None:
        for row in rows:
            if row.note and not row.again:
                self._say(f"{row.name}: {row.note}")

    def _one_at_a_time_on_devices(self) -> None:
        if self._settings.parallel_jobs == 1 or self._job.runtime.get("accelerator") == "cpu":
            return
        cards = bases.accelerators()
        if cards or self._job.runtime.get("accelerator") in {"cuda", "hcu"}:
            self._notes.append(
                "runs are one at a time, in spite of ablation.parallel_jobs: they would share a device and disturb "
                "each other (runtime.accelerator=cpu says that they use none)"
            )
            self._settings = dataclasses.replace(self._settings, parallel_jobs=1)
            self._say(self._notes[-1])

    def _folder(self, composed: DictConfig, basis_key: str) -> Path:
        cwd = Path(str(composed.hydra.runtime.cwd))
        typed = any(text.lstrip("+").startswith("hydra.sweep.dir=") for text in composed.hydra.overrides.hydra)
        named = str(composed.hydra.sweep.dir)
        if typed or not named.startswith("multirun/"):
            return cwd / named
        # The same sweep again finds the same folder, whatever the day: that is how it goes on after it was killed.
        model = str(self._job.model.get("name") or "model")
        return cwd / "multirun" / f"ablation-{model}-{self._settings.strategy}-{basis_key[:8]}"

    def _say(self, text: str) -> None:
        sys.stdout.write(f"ablation: {text}\n")
        sys.stdout.flush()


def _always_on(optimization: OptimizationConfig, registry: Registry, toggles: Sequence[Toggle]) -> list[str]:
    """What `none` does not mean: groups that are on in every row."""
    switched = {toggle.id for toggle in toggles}
    on = [id for id, state in optimization.groups.items() if state and id in registry.groups and id not in switched]
    return [f"on in every row: {', '.join(on)}"] if on else []


def _refuse_sweeps(arguments: Sequence[str]) -> None:
    for override in OverridesParser.create().parse_overrides(list(arguments)):
        if override.is_sweep_override():
            raise AblationError(
                f"'{override.input_line}' has several values, and the ablation sweeps only groups: choose one value"
            )


def _job(composed: DictConfig) -> Job:
    if _Application.build is None or "ablation" not in composed:
        raise AblationError(
            "hydra/sweeper=ablation switches the groups of turbo-train's jobs; this application has none"
        )
    with open_dict(composed):
        composed.hydra.runtime.output_dir = str(composed.hydra.runtime.cwd)
        composed.hydra.job.id = composed.hydra.job.num = 0
    task = composed.copy()
    with open_dict(task):
        del task["hydra"]
    # Settings may name what each row's run has of its own, such as its folder: ${hydra:runtime.output_dir}.
    hydra = HydraConfig.instance()
    before = hydra.cfg
    hydra.set_config(composed.copy())
    try:
        return _Application.build(task, composed.hydra)
    finally:
        hydra.cfg = before
