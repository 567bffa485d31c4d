# SPDX-License-Identifier: Apache-2.0
"""turbo-train: composes the settings with Hydra and starts the run. Never imports torch."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from typing import Any

from turbo_hydra.launch import early
from turbo_hydra.launch.outcome import WRONG_USE, JobFailed

FULL_ERROR = "HYDRA_FULL_ERROR"


def main() -> int:
    """Run the command line; returns the exit status."""
    if sys.argv[1:2] == ["run"]:
        from turbo_hydra.cli import wrapping

        return wrapping.main(sys.argv[2:])
    if "TORCHELASTIC_RUN_ID" in os.environ:
        return fail(
            "torchrun started turbo-train, which starts the ranks itself: run turbo-train alone, with runtime.ranks=N"
        )
    arguments = _of_this_node(sys.argv[1:])
    # Flags ask for something else than a run: to look at settings, to sweep, to complete a word.
    if not any(argument.startswith("-") for argument in arguments):
        early.begin()
    try:
        return composed(arguments)
    finally:
        early.drop()


def _of_this_node(arguments: list[str]) -> list[str]:
    """Leave `.hydra` to the first node of several, which share the run's folder."""
    later = any(re.fullmatch(r"\+*runtime\.node_rank=0*[1-9]\d*", argument) for argument in arguments)
    return [*arguments, "hydra.output_subdir=null"] if later else arguments


def composed(arguments: list[str], command: list[str] | None = None) -> int:
    """Hand the command line to Hydra, and turn what it raises into one sentence and an exit status."""
    import hydra
    from hydra.core.plugins import Plugins

    from turbo_hydra.cli import task
    from turbo_hydra.cli.search_path import InstalledConfigs
    from turbo_hydra.config import hydra_schema
    from turbo_hydra.sweep import sweeping

    hydra_schema.register()
    sweeping.register(task.build)
    _register_plugins(Plugins.instance().register)
    Plugins.instance().register(InstalledConfigs)
    run = hydra.main(version_base="1.3", config_path="pkg://turbo_hydra.conf", config_name="train")(task.train)
    # Without this, Hydra prints a part of a traceback for each mistake of the user and ends with status 1.
    wanted = os.environ.get(FULL_ERROR)
    os.environ[FULL_ERROR] = "1"
    task.state = task.State(full_error=wanted, command=command)
    sys.argv = [sys.argv[0], *arguments]
    try:
        run()
    except JobFailed:
        # The launcher has told of each job. Where all were refused, it was one mistake on the command line.
        return WRONG_USE if set(task.state.statuses) == {WRONG_USE} else 1
    except Exception as problem:
        if wanted == "1" or not _is_users_mistake(problem, task.state.started):
            raise
        from turbo_hydra.cli.messages import sentence

        return fail(sentence(problem))
    return max(task.state.statuses, default=0)


def fail(message: str, status: int = WRONG_USE) -> int:
    """Print one sentence to stderr; returns `status`."""
    sys.stderr.write(f"turbo-train: {message}\n")
    return status


def _is_users_mistake(problem: Exception, started: bool) -> bool:
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    from turbo_hydra.engine.errors import TurboHydraError

    if isinstance(problem, (HydraException, OmegaConfBaseException, TurboHydraError)):
        return True
    # Hydra raises ValueError for some wrong flags and overrides, before it runs anything.
    return isinstance(problem, ValueError) and not started


def _register_plugins(register: Callable[[Any], None]) -> None:
    # The namespace scan misses plugins in some editable installs; registering twice is harmless.
    from hydra_plugins.turbo_hydra.ablation_sweeper import AblationSweeper
    from hydra_plugins.turbo_hydra.torchrun_launcher import TorchrunLauncher

    register(TorchrunLauncher)
    register(AblationSweeper)


if __name__ == "__main__":
    sys.exit(main())
