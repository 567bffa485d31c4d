# SPDX-License-Identifier: Apache-2.0
"""Which optimization config is taken when several ways to name one are there."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from turbo_hydra.config.catalog import OptimizationConfigCatalog
from turbo_hydra.engine.errors import OptimizationConfigError, OptimizationConfigNotFoundError

VARIABLE = "TURBO_HYDRA_OPTIMIZATION_CONFIG"
DEFAULT_FILE = Path("turbo_hydra_configs", "default", "optimization.yaml")


def choose(
    optimization_config_path: str | os.PathLike[str] | None,
    model: str | None,
    environ: Mapping[str, str],
    cwd: Path,
    catalog: OptimizationConfigCatalog,
) -> Path:
    """The absolute path of the optimization config to load.

    The first of these that is said: `optimization_config_path`; the config of `model`; the file that
    TURBO_HYDRA_OPTIMIZATION_CONFIG names; `turbo_hydra_configs/default/optimization.yaml` in the working folder, where
    it exists; the common config.

    Parameters
    ----------
    optimization_config_path : path, optional
        A file, relative to `cwd`.
    model : str, optional
        Name of a model, without regard to case, `-` as `_`.
    environ : mapping
        The environment.
    cwd : Path
        The working folder.
    catalog : OptimizationConfigCatalog
        Knows the models.

    Raises
    ------
    OptimizationConfigNotFoundError
        If what was named is not there: nothing further down the list stands in for it.
    """
    if optimization_config_path is not None:
        return _file(_path(optimization_config_path), cwd, "optimization_config_path names")
    if model is not None:
        if not isinstance(model, str):
            raise OptimizationConfigError(f"model must be the name of a model, found {model!r}")
        return catalog.model_path(model)
    # An empty variable is how a shell unsets one for a single command.
    if environ.get(VARIABLE):
        return _file(environ[VARIABLE], cwd, f"the environment variable {VARIABLE} names")
    default = cwd.absolute() / DEFAULT_FILE
    return default if default.is_file() else catalog.common_path()


def _path(value: object) -> str:
    if isinstance(value, (str, os.PathLike)):
        path = os.fspath(value)
        if isinstance(path, str) and path:
            return path
    raise OptimizationConfigError(f"optimization_config_path must be the path of a file, found {value!r}")


def _file(path: str, cwd: Path, said: str) -> Path:
    file = cwd.absolute() / Path(path).expanduser()
    if not file.is_file():
        reason = "is a folder" if file.is_dir() else "does not exist"
        raise OptimizationConfigNotFoundError(f"{said} {file}, which {reason}")
    return file
