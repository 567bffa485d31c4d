# SPDX-License-Identifier: Apache-2.0
"""Where a model's imports start, for reading its files: what `conf/model/<name>.yaml` says of script and path."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turbo_hydra.config.catalog import OptimizationConfigCatalog
from turbo_hydra.config.yaml_reader import read_yaml
from turbo_hydra.engine.errors import OptimizationConfigError


@dataclass(frozen=True)
class ModelFiles:
    """A model's script and import path.

    Parameters
    ----------
    entry : Path or None
        The script.
    roots : tuple of Path
        Where imports start, as in a rank: the script's folder, the configured path, the repository, its `src`.
    """

    entry: Path | None
    roots: tuple[Path, ...]

    @classmethod
    def of(cls, model: str | None, repo: Path, entry: str | None = None, pythonpath: Sequence[str] = ()) -> ModelFiles:
        """Read the model's config where `entry` and `pythonpath` are not given.

        Raises
        ------
        OptimizationConfigError
            If `entry` is given and is not there.
        """
        said = _config(model) if model is not None else {}
        script = entry if entry is not None else said.get("entry")
        path = list(pythonpath) or [item for item in said.get("pythonpath") or [] if "${" not in str(item)]
        file = repo / script if isinstance(script, str) and "${" not in script else None
        if file is not None and not file.is_file():
            if entry is not None:
                raise OptimizationConfigError(f"--entry: there is no file {file}")
            file = None
        folders = [file.parent] if file is not None else []
        folders += [repo / str(item) for item in path] + [repo, repo / "src"]
        return cls(file, tuple(dict.fromkeys(folder.absolute() for folder in folders if folder.is_dir())))


def _config(model: str) -> dict[str, Any]:
    for folder in OptimizationConfigCatalog().folders:
        file = folder.parent / "model" / f"{model}.yaml"
        if file.is_file():
            return read_yaml(file).data
    return {}
