# SPDX-License-Identifier: Apache-2.0
"""`apply()` and `check()`: one attempt a process, before the model is imported."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from turbo_hydra.engine import errors, plan
from turbo_hydra.engine.apply import Engine
from turbo_hydra.engine.declarations import Place, caller
from turbo_hydra.engine.errors import AlreadyAppliedError, OptimizationConfigError, TurboHydraError
from turbo_hydra.engine.prepared import PreparedExecution
from turbo_hydra.engine.registry import Registry
from turbo_hydra.engine.report import OptimizationReport
from turbo_hydra.engine.selection import Selection

if TYPE_CHECKING:
    from turbo_hydra.config import OptimizationConfig, OptimizationConfigCatalog

logger = logging.getLogger("turbo_hydra")


class _Process:
    """The one attempt of this process."""

    attempt: Place | None = None
    engine: Engine | None = None


def apply(
    *,
    optimization_config_path: str | os.PathLike[str] | None = None,
    model: str | None = None,
    log_report: bool = False,
    registry: Registry | None = None,
    catalog: OptimizationConfigCatalog | None = None,
    force_groups: Sequence[str] = (),
    disable_groups: Sequence[str] = (),
) -> OptimizationReport:
    """Apply the groups of one optimization config in this process, before the model is imported.

    Parameters
    ----------
    optimization_config_path : path, optional
        The config; wins over `model` and every other source.
    model : str, optional
        Name of a model whose config is installed; without regard to case, `-` as `_`.
    log_report : bool
        Whether rank 0 logs the whole report; each rank logs one line with the six counts in any case.
    registry : Registry, optional
        Groups to use in place of those that the config's catalogs declare.
    catalog : OptimizationConfigCatalog, optional
        Resolves the models and what a config extends.
    force_groups : sequence of str
        Ids of enabled groups whose evidence-like failures are let pass.
    disable_groups : sequence of str
        Ids of groups to leave out; what depends on them is left out too.

    Returns
    -------
    OptimizationReport
        What was done; a group that is blocked or rolled back raises nothing unless the config is strict.

    Raises
    ------
    OptimizationConfigNotFoundError
        If the config does not exist.
    OptimizationConfigError
        If its content or an argument is wrong. If nothing was imported yet, the call may be repeated.
    AlreadyAppliedError
        If this process has had its attempt.
    OptimizationRollbackError
        If a group failed and could not be taken back; `report` has the report.
    StrictStop
        If the config is strict and an enabled group is not applied.
    """
    place, _ = caller()
    _refuse_second(place)
    config = _load(optimization_config_path, model, catalog)
    selection = _selection(config, force_groups, disable_groups)
    return _attempt(place, config, selection, registry, log_report=log_report)


def apply_config(
    config: OptimizationConfig,
    *,
    run_id: str | None = None,
    repository: Path | None = None,
    accelerator: str = "auto",
    runtime_config_path: str | None = None,
    log_report: bool = False,
    rank: int = 0,
    registry: Registry | None = None,
) -> OptimizationReport:
    """What `apply` does, for a config that is loaded already; the launcher's ranks call it.

    Parameters
    ----------
    config : OptimizationConfig
        The resolved config.
    run_id : str, optional
        Equal on all ranks.
    repository : Path, optional
        The model's repository, for its commit and state.
    accelerator : str
        `runtime.accelerator`.
    runtime_config_path : str, optional
        For the report.
    log_report, registry
        As for `apply`.
    rank : int
        The rank that may log the whole report is 0.

    Raises
    ------
    As `apply`.
    """
    place, _ = caller()
    _refuse_second(place)
    return _attempt(
        place,
        config,
        config.selection(repository=repository, accelerator=accelerator),
        registry,
        run_id=run_id,
        runtime_config_path=runtime_config_path,
        log_report=log_report,
        rank=rank,
    )


def check(
    *,
    optimization_config_path: str | os.PathLike[str] | None = None,
    model: str | None = None,
    registry: Registry | None = None,
    catalog: OptimizationConfigCatalog | None = None,
    force_groups: Sequence[str] = (),
    disable_groups: Sequence[str] = (),
) -> PreparedExecution:
    """Make the plan of `apply` without installing anything.

    The plan is made in a process of its own, so that it leaves nothing behind in this one; with a live `registry` or
    `catalog`, which cannot be handed to another process, it is made here and the modules that it imports stay.

    Parameters
    ----------
    optimization_config_path, model, registry, catalog, force_groups, disable_groups
        As for `apply`.

    Raises
    ------
    OptimizationConfigNotFoundError, OptimizationConfigError
        As `apply`.
    """
    config = _load(optimization_config_path, model, catalog)
    selection = _selection(config, force_groups, disable_groups)
    if registry is None and catalog is None and config.path is not None:
        return _check_in_child(config.path, selection)
    made = plan.prepare(_registry(config, registry), selection)
    made.uninstall_imports()
    return PreparedExecution.from_dict({**made.to_execution().to_dict(), "imports_stay": True})


def bind_late(module: str) -> None:
    """Apply the members whose target has just come into being in `module`; the rank's runner calls it.

    Raises
    ------
    StrictStop
        If the config is strict and a late target is not what its group was validated against.
    """
    if _Process.engine is not None and _Process.engine.pending:
        _Process.engine.bind_late(module)


def current_report() -> OptimizationReport | None:
    """The report of this process's attempt, None before it."""
    return _Process.engine.report if _Process.engine is not None else None


def current_engine() -> Engine | None:
    """The engine of this process's attempt, for integrations that look at live objects; None before it."""
    return _Process.engine


def _refuse_second(place: Place) -> None:
    if _Process.attempt is not None:
        raise AlreadyAppliedError(
            f"apply() is called a second time, at {place}; this process has had its attempt at {_Process.attempt}"
        )


def _load(
    path: str | os.PathLike[str] | None, model: str | None, catalog: OptimizationConfigCatalog | None
) -> OptimizationConfig:
    from turbo_hydra.config import OptimizationConfigCatalog, choose

    catalog = catalog or OptimizationConfigCatalog()
    return catalog.load(choose(path, model, os.environ, Path.cwd(), catalog))


def _selection(config: OptimizationConfig, force: Sequence[str], disable: Sequence[str]) -> Selection:
    from turbo_hydra.config.fields import did_you_mean

    selection = config.selection(force=force, disable=disable)
    for id in disable:
        if id not in config.groups:
            raise OptimizationConfigError(
                f"disable_groups names '{id}', which the config does not{did_you_mean(id, config.groups)}"
            )
    return selection


def _registry(config: OptimizationConfig, registry: Registry | None) -> Registry:
    from turbo_hydra.config import check_names, load_catalogs, unmatched

    made = registry if registry is not None else load_catalogs(config)
    check_names(config, made)
    for sentence in unmatched(config, made):
        logger.warning(sentence)
    return made


def _attempt(
    place: Place,
    config: OptimizationConfig,
    selection: Selection,
    registry: Registry | None,
    *,
    run_id: str | None = None,
    runtime_config_path: str | None = None,
    log_report: bool = False,
    rank: int | None = None,
) -> OptimizationReport:
    # From here on modules are imported: whatever comes of it, the attempt is used up.
    _Process.attempt = place
    made = plan.prepare(_registry(config, registry), selection, _shadow if selection.shadow_calls else None)
    describe = {
        "optimization_config": config.to_dict(),
        "optimization_config_path": str(config.path) if config.path else None,
        "runtime_config_path": runtime_config_path,
    }
    engine = Engine(made, run_id=run_id or uuid.uuid4().hex[:12], describe=describe)
    _Process.engine = engine
    report = engine.apply()
    rank = int(os.environ.get("RANK", "0")) if rank is None else rank
    _log(report, rank, log_report or config.log_report)
    if config.strict:
        engine.strict_stop()
    return report


def _shadow(calls: int) -> Any:
    from turbo_hydra.measure.shadow import MemberShadow

    return MemberShadow(calls)


def _log(report: OptimizationReport, rank: int, whole: bool) -> None:
    logger.info("rank %d: %s", rank, report.summary_line())
    if whole and rank == 0:
        logger.info(json.dumps(report.to_dict(), indent=1, default=str))


def _check_in_child(path: Path, selection: Selection) -> PreparedExecution:
    with tempfile.TemporaryDirectory(prefix="turbo_hydra_check_") as folder:
        request, answer = Path(folder, "request.json"), Path(folder, "answer.json")
        data: dict[str, Any] = {
            "config": str(path),
            "sys_path": [str(Path(item or ".").absolute()) for item in sys.path],
            "force": list(selection.force),
            "disable": list(selection.disable),
            "answer": str(answer),
        }
        request.write_text(json.dumps(data), encoding="utf-8")
        done = subprocess.run(
            [sys.executable, "-m", "turbo_hydra.check_process", str(request)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(data["sys_path"])},
        )
        if not answer.exists():
            tail = done.stderr.strip().splitlines()[-1:] or ["no message"]
            raise TurboHydraError(f"the process that checks ended with status {done.returncode}: {tail[0]}")
        found = json.loads(answer.read_text(encoding="utf-8"))
    if "error" in found:
        raise getattr(errors, found["type"])(found["error"])
    return PreparedExecution.from_dict(found)
