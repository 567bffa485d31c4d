# SPDX-License-Identifier: Apache-2.0
"""The work of `child`, outside the namespace that becomes the script's."""

from __future__ import annotations

import os
import sys
from typing import Any

from turbo_hydra.engine.errors import StrictStop, TurboHydraError
from turbo_hydra.launch import child_report, outcome, statements
from turbo_hydra.launch.applying import apply_job, late_binder
from turbo_hydra.launch.job import Job, setting
from turbo_hydra.launch.main_module import Main


def execute(namespace: dict[str, Any]) -> None:
    """Apply the optimizations, then execute the script that the parent executes, guarded as in any such child.

    `runtime.children=false` leaves such children as they are under plain python.
    """
    main, job_path = Main.announced(os.environ)
    job = Job.read(job_path)
    # While its statements run, `__main__` is the module that they fill, as it will be when they are done.
    sys.modules["__main__"] = sys.modules["__mp_main__"]
    sys.argv[0] = str(main.path)
    main.prepare(namespace, "__mp_main__")
    if not setting(job.runtime, "children", True):
        statements.execute(main.path, str(main.path), namespace, lambda: None)
        return
    rank = int(os.environ.get("RANK", "0"))
    try:
        applied = apply_job(job, rank=rank, log_report=False)
    except TurboHydraError as problem:
        sys.stderr.write(f"turbo_hydra: a child of the rank cannot start: {problem}\n")
        raise SystemExit(outcome.STRICT_STOP if isinstance(problem, StrictStop) else 1) from None
    child_report.begin(job, rank, applied, in_rank=False)
    statements.execute(main.path, str(main.path), namespace, late_binder(job))
