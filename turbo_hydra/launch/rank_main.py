# SPDX-License-Identifier: Apache-2.0
"""The work of `rank`, outside the namespace that becomes the script's."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import itertools
import logging
import os
import runpy
import signal
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from turbo_hydra.engine.errors import OptimizationRollbackError, StrictStop, TurboHydraError
from turbo_hydra.launch import (
    arguments,
    binding,
    caches,
    child_report,
    environment,
    failures,
    outcome,
    paths,
    processes,
    start_method,
    statements,
    watching,
)
from turbo_hydra.launch.applying import apply_job, late_binder
from turbo_hydra.launch.job import Job, JobError
from turbo_hydra.launch.main_module import Main, replace_import_path, restore_safe_path
from turbo_hydra.launch.rank_report import RankReport

if TYPE_CHECKING:
    from turbo_hydra.engine.report import OptimizationReport
    from turbo_hydra.measure.meter import Meter

INTERRUPTED = 128 + signal.SIGINT


def main(argv: Sequence[str], namespace: dict[str, Any]) -> NoReturn:
    """Be a rank: apply the optimizations, then execute the script as `__main__`.

    Parameters
    ----------
    argv : sequence of str
        The job's file; after `--`, a script (or `-m` and a module) and its arguments, in place of the job's.
    namespace : dict
        The globals of `__main__`.
    """
    if processes.PARENT_VARIABLE in os.environ:
        processes.die_with_parent(signal.SIGKILL)
    watching.answer_with_stacks()
    _name_own_frames(namespace)
    restore_safe_path(os.environ)
    rank = int(os.environ.get("RANK", "0"))
    try:
        job = _job(argv)
    except TurboHydraError as problem:
        _refuse(str(problem), outcome.WRONG_USE)
    report = RankReport(job.rank_folder(rank) / "report.json", job.run_id, rank)
    try:
        main_file = _begin(job, rank, namespace, report)
    except TurboHydraError as problem:
        report.finish("failed", outcome.WRONG_USE)
        _refuse(str(problem), outcome.WRONG_USE)
    except KeyboardInterrupt:
        report.finish("interrupted", INTERRUPTED)
        raise SystemExit(INTERRUPTED) from None
    except Exception as problem:
        _record(job, rank, problem)
        report.finish("failed", 1)
        raise
    _execute(job, rank, main_file, namespace, report)


def _name_own_frames(namespace: dict[str, Any]) -> None:
    """Spare the script's `inspect.stack()` a search through all modules, at each call, for what started it.

    It searches for the file of each frame that no module has: those of runpy, and of the module that became the
    script's. With a few thousand modules a search takes tens of milliseconds.
    """
    inspect.modulesbyfile.setdefault(runpy.run_module.__code__.co_filename, runpy.__name__)
    inspect.modulesbyfile.setdefault(namespace["__file__"], "turbo_hydra.launch.rank")


def _job(argv: Sequence[str]) -> Job:
    if not argv:
        raise JobError("usage: python -m turbo_hydra.launch.rank JOB [-- [-m] SCRIPT ARGUMENT...]")
    # deepspeed and torch.distributed.launch put their --local_rank=N right behind what they take for the script.
    own = list(itertools.takewhile(lambda word: word.startswith("--local"), argv))
    job = Job.read(argv[len(own)] if argv[len(own) :] else "")
    if argv[len(own) + 1 : len(own) + 2] != ["--"]:
        return job
    given = list(argv[len(own) + 2 :])
    module = given.pop(0) == "-m" if given[:1] == ["-m"] else False
    if not given:
        raise JobError("a script, or -m and a module, must follow --")
    named = {"module": given[0], "entry": None} if module else {"entry": os.path.abspath(given[0]), "module": None}
    rest = {"positional": [], "args": {}, "extra": [*own, *given[1:]], "cwd": os.getcwd()}
    return dataclasses.replace(job, model={**job.model, **named, **rest})


def _begin(job: Job, rank: int, namespace: dict[str, Any], report: RankReport) -> Main:
    """Put everything in place that the script would find under plain python, apply, and start metering."""
    _log_to_stderr(rank)
    environment.apply(job.runtime, os.environ, in_rank=True)
    report.bound = binding.bind(job.runtime, os.environ)
    for warning in report.bound["warnings"]:
        logging.getLogger("turbo_hydra").warning("%s", warning)
    caches.for_rank(os.environ)
    start_method.apply(job.runtime)
    script = paths.script(job)
    sys.argv = [str(script.path or script.module), *arguments.render(job.model)]
    replace_import_path(os.getcwd(), script)
    os.chdir(script.cwd)
    main_file = None
    if script.path is not None:
        # Modules that are imported while applying see the `__main__` that they would see otherwise. (Those of a
        # script that is a module cannot: to find it, its packages are imported, which must not be before applying.)
        main_file = _become(Main.of(script), job, namespace)
    applied = _apply(job, rank, report)
    meter = _meter(job, rank)
    if job.task is not None:
        from turbo_hydra.launch import hydra_task

        hydra_task.prepare(job.folder, by_script=job.task == "script")
    if main_file is None:
        try:
            main_file = _become(Main.of(script), job, namespace)
        except ModuleNotFoundError as problem:
            raise JobError(f"'model.module' is {script.module}: {problem}") from None
    report.begin(applied, meter)
    child_report.begin(job, rank, applied, in_rank=True)
    return main_file


def _become(main_file: Main, job: Job, namespace: dict[str, Any]) -> Main:
    main_file.prepare(namespace, "__main__")
    main_file.announce(job.path, os.environ)
    sys.argv[0] = str(main_file.path)
    return main_file


def _apply(job: Job, rank: int, report: RankReport) -> OptimizationReport | None:
    try:
        return apply_job(job, rank, bool(job.optimization.get("log_report")), metered=_metered(job))
    except StrictStop as stop:
        report.refuse(stop.report, "strict_stop", outcome.STRICT_STOP)
        _refuse(str(stop), outcome.STRICT_STOP)
    except OptimizationRollbackError as problem:
        report.refuse(problem.report, "failed", 1)
        _refuse(str(problem), 1)


def _metered(job: Job) -> bool:
    return bool(job.measure.get("enabled", bool(job.measure)))


def _meter(job: Job, rank: int) -> Meter | None:
    if not _metered(job):
        return None
    from turbo_hydra.measure import meter

    return meter.install(job.measure, job.model, job.rank_folder(rank))


def _execute(job: Job, rank: int, main_file: Main, namespace: dict[str, Any], report: RankReport) -> NoReturn:
    after_each = late_binder(job)
    try:
        statements.execute(main_file.path, str(main_file.path), namespace, after_each)
    except SystemExit as end:
        status = _status(end.code)
        report.finish("succeeded" if status == 0 else "failed", status)
        raise
    except KeyboardInterrupt:
        report.finish("interrupted", INTERRUPTED)
        raise SystemExit(INTERRUPTED) from None
    except StrictStop as stop:
        report.finish("strict_stop", outcome.STRICT_STOP)
        _refuse(str(stop), outcome.STRICT_STOP)
    except BaseException as problem:
        failures.trimmed(problem, str(main_file.path))
        _record(job, rank, problem)
        report.finish("failed", 1)
        sys.excepthook(type(problem), problem, problem.__traceback__)
        raise SystemExit(1) from None
    report.finish("succeeded", 0)
    raise SystemExit(0)


def _record(job: Job, rank: int, problem: BaseException) -> None:
    # A disk that is full may not hide what went wrong.
    with contextlib.suppress(OSError):
        failures.record(job.rank_folder(rank) / "error.json", problem, rank)


def _status(code: object) -> int:
    """Return the status that the interpreter makes of what a script gave `sys.exit`."""
    if code is None:
        return 0
    return code & 0xFF if isinstance(code, int) else 1


def _refuse(sentence: str, status: int) -> NoReturn:
    sys.stderr.write(f"turbo_hydra: {sentence}\n")
    raise SystemExit(status)


def _log_to_stderr(rank: int) -> None:
    # Our own logger only: the root's handlers are the script's to choose.
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter(f"[turbo_hydra rank {rank}] %(message)s"))
    logger = logging.getLogger("turbo_hydra")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
