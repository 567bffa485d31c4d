# SPDX-License-Identifier: Apache-2.0
"""OpenPI's five files for `transformers`, served from where OpenPI's code is instead of copied over the package."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

from turbo_hydra import CompatibilityResult

if TYPE_CHECKING:
    from turbo_hydra import CheckContext
    from turbo_hydra.compatibility import ImportContext

VERSION = "4.53.2"
FILES = (
    "models/gemma/configuration_gemma.py",
    "models/gemma/modeling_gemma.py",
    "models/paligemma/modeling_paligemma.py",
    "models/siglip/check.py",
    "models/siglip/modeling_siglip.py",
)
_FOLDER = Path("models_pytorch", "transformers_replace")
# Where the package `openpi` may lie in a repository; in OpenPI's own it is the first.
_ROOTS = ("src", ".")


def check(context: CheckContext) -> CompatibilityResult:
    """Whether the files are there, and for the installed version."""
    found = context.environment["versions"].get("transformers")
    if found is not None and found != VERSION:
        return CompatibilityResult(
            False,
            f"OpenPI's files for transformers are made for version {VERSION}, found {found}; "
            f"install transformers=={VERSION}",
        )
    folder = _folder(context.repository)
    missing = [name for name in FILES if folder is None or not (folder / name).is_file()]
    if missing:
        return CompatibilityResult(
            False,
            f"{_where(folder, context.repository)} has no {missing[0]}, which transformers needs for OpenPI; "
            "set model.repo to a whole checkout of OpenPI",
        )
    return CompatibilityResult(True)


def source(text: str | None, context: ImportContext) -> str:
    """Text of OpenPI's file for the module that is imported; the installed package's own text is not looked at.

    Raises
    ------
    FileNotFoundError
        If OpenPI's code does not have it.
    """
    name = context.module.partition(".")[2].replace(".", "/") + ".py"
    folder = _folder(context.repository)
    file = None if folder is None else folder / name
    if file is None or not file.is_file():
        raise FileNotFoundError(
            f"{_where(folder, context.repository)} has no {name}, which is served as '{context.module}'; "
            "set model.repo to a whole checkout of OpenPI"
        )
    return file.read_text(encoding="utf-8")


def _folder(repository: Path | None) -> Path | None:
    """The folder of the files: in the repository, else in the package that `import openpi` would find."""
    if repository is not None:
        for root in _ROOTS:
            package = repository / root / "openpi"
            if package.is_dir():
                return package / _FOLDER
    spec = importlib.util.find_spec("openpi")
    locations = spec.submodule_search_locations if spec is not None else None
    return Path(next(iter(locations)), _FOLDER) if locations else None


def _where(folder: Path | None, repository: Path | None) -> str:
    return str(folder or repository or "the import path, where no package 'openpi' is found,")
