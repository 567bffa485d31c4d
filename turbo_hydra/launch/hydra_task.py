# SPDX-License-Identifier: Apache-2.0
"""A rank of somebody else's Hydra application: the job's config reaches its task, composed by the sweep's command.

The application's own statements run in the rank as under plain python; only `hydra.main` is another: it composes
nothing, and hands over the config.
"""

from __future__ import annotations

import functools
import importlib
import logging
import os
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

PAYLOAD = "task.pkl"
RETURNED = "returned.pkl"
# Tells the entry below where the payload is; read and removed before anything of the application's runs.
VARIABLE = "TURBO_HYDRA_TASK"


class Payload:
    """What the sweep's command left for the ranks of a job.

    Parameters
    ----------
    folder : Path
        The job's folder `turbo`.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._data: dict[str, Any] = pickle.loads((folder / PAYLOAD).read_bytes())
        self.name: str = self._data["name"]

    def run(self, task: Callable[[Any], Any]) -> None:
        """Give the config to the task, and keep what rank 0 returns."""
        from hydra.core.hydra_config import HydraConfig
        from hydra.core.utils import setup_globals

        rank = int(os.environ.get("RANK", "0"))
        setup_globals()
        # Loaded only now: classes of the application that it is typed by are there.
        config, hydra = pickle.loads(self._data["config"])
        HydraConfig.instance().cfg = hydra
        _log(hydra, rank)
        returned = task(config)
        if rank == 0:
            _keep(returned, self._folder / RETURNED)

    def replace_main(self) -> None:
        """Have `hydra.main` call the job's task with its config, and end the rank after it."""
        import hydra
        import hydra.main as module
        from hydra import version

        unsaid = object()

        def main(config_path: Any = None, config_name: Any = None, version_base: Any = unsaid) -> Any:
            version.setbase(version_base if version_base is not unsaid else module._UNSPECIFIED_)

            def decorate(task: Callable[[Any], Any]) -> Callable[..., Any]:
                @functools.wraps(task)
                def decorated(given: Any = None) -> Any:
                    if given is not None:
                        return task(given)
                    # Another task of the same script has a sweep of its own.
                    if task.__qualname__ == self.name:
                        self.run(task)
                        raise SystemExit(0)
                    return None

                return decorated

            return decorate

        hydra.main = main
        sys.modules["hydra.main"].main = main  # type: ignore[attr-defined]

    def call(self) -> None:
        """Find the task by its name or take it as it was sent, and run it."""
        kind, *what = self._data["task"]
        if kind == "value":
            task = pickle.loads(what[0])
        else:
            task = functools.reduce(getattr, what[1].split("."), importlib.import_module(what[0]))
        self.run(task)


def _log(hydra: Any, rank: int) -> None:
    """Set up the job's logging: rank 0 writes the job's log, another one its own beside it."""
    from hydra.core.utils import configure_log
    from omegaconf import OmegaConf

    settings: Any = OmegaConf.to_container(hydra.hydra.job_logging, resolve=True)
    if rank:
        for handler in (settings.get("handlers") or {}).values():
            if handler.get("filename"):
                path = Path(handler["filename"])
                handler["filename"] = str(path.with_name(f"{path.stem}.rank{rank}{path.suffix}"))
    configure_log(OmegaConf.create(settings), hydra.hydra.verbose)


def _keep(returned: Any, path: Path) -> None:
    try:
        data = pickle.dumps(returned)
    except Exception:
        try:
            import cloudpickle

            data = cloudpickle.dumps(returned)
        except Exception as problem:
            logging.getLogger("turbo_hydra").warning("what the task returned cannot be handed on: %s", problem)
            return
    path.write_bytes(data)


def prepare(job_folder: Path, by_script: bool) -> None:
    """Make this rank ready for the application's statements, or for the entry `hydra_task_main`."""
    if by_script:
        Payload(job_folder).replace_main()
    else:
        os.environ[VARIABLE] = str(job_folder)
