# SPDX-License-Identifier: Apache-2.0
"""`turbo-train run [overrides] -- COMMAND`: groups for a training command that people already type."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from turbo_hydra.engine.errors import TurboHydraError

USAGE = """turbo-train run [OVERRIDES] -- COMMAND

Runs COMMAND with the groups of an optimization config applied in its ranks, and nowhere else. COMMAND is
  torchrun A train.py B        python A train.py B        python -m package.train B
  accelerate launch A train.py B        deepspeed A train.py B        ./train.py B
How many ranks there are, and where, is the command's own business.

OVERRIDES are those of turbo-train, such as optimization=NAME, optimization.config=FILE, optimization.disable=[...],
runtime.environment.set.NAME=VALUE, hydra.run.dir=FOLDER. Without one that names a config it is the file in
TURBO_HYDRA_OPTIMIZATION_CONFIG, else ./turbo_hydra_configs/default/optimization.yaml, else the config `common`.
"""
# What says which config is taken; a model brings its own.
_CHOOSE = ("optimization", "optimization.config", "optimization/recipe", "model", "experiment")
# What belongs to the launcher in the command.
_OF_THE_COMMAND = ("ranks", "nodes", "node_rank", "rendezvous", "restarts", "logs", "slurm")
# The output goes where the command's launcher puts it, so nobody here sees that it has stopped.
_UNSEEN = "runtime.timeouts.hang"


def main(arguments: list[str]) -> int:
    """Run the command line behind `turbo-train run`; returns the exit status."""
    from turbo_hydra.cli.train import composed, fail
    from turbo_hydra.launch import commands

    ours, dashes, command = _split(arguments)
    if set(ours) & {"-h", "--help"}:
        sys.stdout.write(USAGE)
        return 0
    if not dashes:
        return fail("put -- before the command: turbo-train run [overrides] -- torchrun --nproc-per-node=2 train.py")
    keys = [override.partition("=")[0].lstrip("+~") for override in ours]
    for key in keys:
        parts = key.split(".")
        if parts[0] == "runtime" and parts[1:2] and parts[1] in _OF_THE_COMMAND:
            return fail(f"'{key}' is decided by the command after --; give it to its launcher")
        if key == _UNSEEN:
            return fail(
                f"'{key}' looks at the output of the ranks, which the command after -- puts elsewhere; leave it out"
            )
        if parts[0] == "model" and parts[1:]:
            return fail(f"'{key}' describes a script, and the command after -- names its own")
    try:
        # Once here, so that a command that cannot be rewritten leaves no folder behind.
        commands.rewrite(command, "JOB")
        chosen = [] if set(keys) & set(_CHOOSE) else [_default()]
    except TurboHydraError as problem:
        return fail(str(problem))
    model = [] if "model" in keys else ["model=custom"]
    return composed([*model, *chosen, *ours], command)


def _split(arguments: list[str]) -> tuple[list[str], bool, list[str]]:
    if "--" not in arguments:
        return arguments, False, []
    place = arguments.index("--")
    return arguments[:place], True, arguments[place + 1 :]


def _default() -> str:
    from turbo_hydra.config import OptimizationConfigCatalog
    from turbo_hydra.config.choose import choose

    path = str(choose(None, None, os.environ, Path.cwd(), OptimizationConfigCatalog()))
    quoted = path.replace("\\", "\\\\").replace("'", "\\'")
    return f"optimization.config='{quoted}'"
