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
        script, folders = named(model, entry, pythonpath)
        file = repo / script if script is not None else None
        if file is not None and not file.is_file():
            if entry is not None:
                raise OptimizationConfigError(f"--entry: there is no file {file}")
            file = None
        found = (repo / folder for folder in folders)
        return cls(file, tuple(dict.fromkeys(folder.absolute() for folder in found if folder.is_dir())))


def named(model: str | None, entry: str | None, pythonpath: Sequence[str]) -> tuple[str | None, list[str]]:
    """Script and import path below the repository, as given or as the model's config says; nothing is looked for."""
    said = _config(model) if model is not None else {}
    script = entry if entry is not None else said.get("entry")
    if not isinstance(script, str) or "${" in script:
        script = None
    path = [str(item) for item in pythonpath or said.get("pythonpath") or [] if "${" not in str(item)]
    first = [script.rpartition("/")[0] or "."] if script is not None else []
    return script, list(dict.fromkeys([*first, *path, ".", "src"]))


def descriptions() -> dict[str, str]:
    """What each installed model is: the first line of its file that is a comment and no licence."""
    found: dict[str, str] = {}
    for folder in _folders():
        for file in sorted(folder.glob("*.yaml")):
            lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
            comments = (line.lstrip("# ") for line in lines if line.startswith("#") and "SPDX-" not in line)
            found.setdefault(file.stem, next(comments, ""))
    return dict(sorted(found.items()))


def _config(model: str) -> dict[str, Any]:
    for folder in _folders():
        file = folder / f"{model}.yaml"
        if file.is_file():
            return read_yaml(file).data
    return {}


def _folders() -> list[Path]:
    return [folder.parent / "model" for folder in OptimizationConfigCatalog().folders]
