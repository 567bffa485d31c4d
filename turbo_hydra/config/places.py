# SPDX-License-Identifier: Apache-2.0
"""Where a model's code is: a folder, or a folder inside an installed package."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path

from turbo_hydra.engine.errors import OptimizationConfigError

PACKAGE = "pkg://"
_OWN = Path(__file__).absolute().parent.parent


@dataclass(frozen=True)
class ModelPlace:
    """A folder with a model's code.

    Parameters
    ----------
    folder : Path
        Absolute.
    shipped : str or None
        `pkg://package/folder` where a package brings the code: its version says which code it is, and no commit does.
    """

    folder: Path
    shipped: str | None = None

    @classmethod
    def of(cls, named: str | Path) -> ModelPlace:
        """What `--repo` names.

        Raises
        ------
        OptimizationConfigError
            If it is not there.
        """
        text = str(named)
        if text.startswith(PACKAGE):
            return cls(_in_package(text), text.rstrip("/"))
        folder = Path(named).expanduser().absolute()
        if not folder.is_dir():
            raise OptimizationConfigError(f"--repo: there is no folder {folder}")
        examples = (_OWN / "examples").resolve()
        if folder.resolve().is_relative_to(examples):
            return cls(folder, f"{PACKAGE}turbo_hydra/examples/{folder.resolve().relative_to(examples).as_posix()}")
        return cls(folder)


def _in_package(text: str) -> Path:
    name, _, inside = text[len(PACKAGE) :].partition("/")
    spec = importlib.util.find_spec(name) if name.isidentifier() else None
    if spec is None or not spec.submodule_search_locations:
        raise OptimizationConfigError(f"--repo: {text}: no package '{name}' is installed")
    folder = Path(next(iter(spec.submodule_search_locations)), inside).absolute()
    if not folder.is_dir():
        raise OptimizationConfigError(f"--repo: {text}: there is no folder {folder}")
    return folder
