# SPDX-License-Identifier: Apache-2.0
"""A job of somebody else's Hydra application, run in ranks instead of in the sweep's own process."""

from __future__ import annotations

import contextlib
import copy
import functools
import importlib.util
import os
import pickle
import secrets
import sys
import time
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.types import TaskFunction
from omegaconf import DictConfig, OmegaConf, open_dict, read_write
from omegaconf.errors import OmegaConfBaseException

from turbo_hydra import launch
from turbo_hydra.config import OptimizationConfigCatalog
from turbo_hydra.config.hydra_schema import RuntimeConf
from turbo_hydra.engine.errors import TurboHydraError
from turbo_hydra.launch import hydra_task
from turbo_hydra.launch.secrets import HIDDEN, hide_override, is_secret

ENTRY = "turbo_hydra.launch.hydra_task_main"


class RankTask:
    """A task function that runs another one in ranks and returns what rank 0 returned.

    Parameters
    ----------
    task : callable
        The application's task function.
    runtime : mapping
        `hydra.launcher.runtime`: as the group `runtime` of turbo-train.
    optimization : str or None
        `hydra.launcher.optimization`: a file, or the name of an installed config.
    """

    def __init__(self, task: TaskFunction, runtime: Any, optimization: str | None) -> None:
        self._task = task
        self.runtime = typed(runtime)
        self._optimization = optimization
        functools.update_wrapper(self, task, updated=())  # callbacks look at the task

    def __call__(self, config: DictConfig) -> Any:
        """Run the job's ranks.

        Raises
        ------
        JobFailed
            If they end with another status than 0; their logs say why.
        """
        hydra: Any = HydraConfig.instance().cfg
        output = str(hydra.hydra.runtime.output_dir)
        folder = Path(output) / "turbo"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / hydra_task.RETURNED).unlink(missing_ok=True)
        model, task = self._found()
        data = {"name": _name(self._task), "task": task, "config": _pickled(config, hydra)}
        payload = folder / hydra_task.PAYLOAD
        payload.touch(mode=0o600)
        payload.write_bytes(pickle.dumps(data))
        optimization, path = self._config(str(hydra.hydra.runtime.cwd))
        job = launch.Job(
            run_id=f"{time.strftime('%Y%m%dT%H%M%S')}-{secrets.token_hex(4)}",
            output_dir=output,
            cwd=os.getcwd(),
            model={"name": str(hydra.hydra.job.name), "cwd": os.getcwd(), **model},
            runtime=self.runtime,
            optimization=optimization,
            optimization_config_path=path,
            task="script" if task[0] == "script" else "entry",
        )
        status = launch.run(job)
        if status:
            raise launch.JobFailed(status, output)
        try:
            return pickle.loads((folder / hydra_task.RETURNED).read_bytes())
        except FileNotFoundError:  # a warning in the rank's log says why
            return None

    def _found(self) -> tuple[dict[str, Any], tuple[Any, ...]]:
        """Return how a rank finds the task: in the script, in a module, or as it is."""
        main = sys.modules["__main__"]
        name, module = _name(self._task), getattr(self._task, "__module__", None)
        spec = getattr(main, "__spec__", None)
        file = getattr(main, "__file__", None)
        extra = _import_path()
        if module == "__main__" and spec is not None:
            return {"module": spec.name.removesuffix(".__main__"), "pythonpath": extra}, ("script", name)
        if module == "__main__" and file is not None and os.path.isfile(file):
            return {"entry": os.path.abspath(file), "pythonpath": extra}, ("script", name)
        if module is not None and _is_importable(module, name, self._task):
            return {"module": ENTRY, "pythonpath": extra}, ("reference", module, name)
        return {"module": ENTRY, "pythonpath": extra}, ("value", _by_value(self._task))

    def _config(self, cwd: str) -> tuple[dict[str, Any], str | None]:
        if self._optimization is None:
            return {}, None
        catalog = OptimizationConfigCatalog()
        named = str(self._optimization)
        if named.endswith((".yaml", ".yml")) or "/" in named:
            path = Path(cwd, named).expanduser()
        else:
            path = catalog.common_path() if named == "common" else catalog.model_path(named)
        config = catalog.load(path)
        return config.to_dict(), str(config.path)


def typed(runtime: Any) -> dict[str, Any]:
    """Check settings of a runtime and complete them.

    Raises
    ------
    TurboHydraError
        If a setting is unknown or has the wrong type.
    """
    schema = OmegaConf.structured(RuntimeConf)
    for tree in (schema.environment.set, schema.slurm.options):
        OmegaConf.set_struct(tree, False)
    try:
        merged = OmegaConf.merge(schema, runtime or {})
        data = OmegaConf.to_container(merged, resolve=True, enum_to_str=True)
    except OmegaConfBaseException as problem:
        raise TurboHydraError(f"'hydra.launcher.runtime': {str(problem).splitlines()[0]}") from None
    assert isinstance(data, dict)
    return {str(key): value for key, value in data.items()}


def _name(task: Any) -> str:
    return str(getattr(task, "__qualname__", type(task).__qualname__))


def _is_importable(module: str, name: str, task: Any) -> bool:
    """Tell whether a fresh process finds the task under its name."""
    try:
        if importlib.util.find_spec(module) is None:
            return False
        found: Any = functools.reduce(getattr, name.split("."), sys.modules[module])
    except (AttributeError, ImportError, KeyError, ValueError):
        return False
    while found is not task and hasattr(found, "__wrapped__"):
        found = found.__wrapped__
    return found is task


def _by_value(task: Any) -> bytes:
    try:
        return pickle.dumps(task)
    except Exception as problem:
        try:
            import cloudpickle
        except ImportError:
            raise TurboHydraError(
                f"the task function {_name(task)} cannot be found by its name ({problem}); define it at the top of a "
                "module, or install cloudpickle"
            ) from None
        return bytes(cloudpickle.dumps(task))


def _pickled(config: DictConfig, hydra: Any) -> bytes:
    """Return the job's config and Hydra's, with what only this process can resolve resolved, and without secrets."""
    config, hydra = copy.deepcopy(config), copy.deepcopy(hydra)
    # What cannot be resolved raises in the task, where it reads the value, as without ranks.
    with contextlib.suppress(OmegaConfBaseException):
        OmegaConf.resolve(config)
    with read_write(hydra.hydra), open_dict(hydra.hydra):
        for name in list(hydra.hydra.job.env_set):
            if is_secret(str(name)):
                hydra.hydra.job.env_set[name] = HIDDEN
        for said in (hydra.hydra.overrides.hydra, hydra.hydra.overrides.task):
            said[:] = [hide_override(str(item)) for item in said]
    return _by_value((config, hydra))


def _import_path() -> list[str]:
    """Return the folders that were added to this process's import path: a rank needs them too."""
    own = (sys.prefix, sys.base_prefix, sys.exec_prefix)
    return [
        os.path.abspath(entry)
        for entry in sys.path
        if entry and not any(os.path.abspath(entry).startswith(os.path.join(root, "lib")) for root in own)
    ]
