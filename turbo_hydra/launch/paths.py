# SPDX-License-Identifier: Apache-2.0
"""Where a model's repository, script and working folder are."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path

from turbo_hydra.launch.job import Job, JobError

_PACKAGE = "pkg://"


@dataclass(frozen=True)
class Script:
    """What a rank executes.

    Attributes
    ----------
    repository : Path or None
        The model's repository.
    path : Path or None
        The script's file; None for a module.
    module : str or None
        The dotted module, as after `python -m`; None for a file.
    cwd : Path
        The script's working folder.
    import_path : tuple of str
        Folders searched before the installed packages, the script's own first.
    """

    repository: Path | None
    path: Path | None
    module: str | None
    cwd: Path
    import_path: tuple[str, ...]


def repository(job: Job) -> Path | None:
    """Return the folder that `model.repo` names, None where it names none.

    Raises
    ------
    JobError
        If it is not there.
    """
    named = job.model.get("repo")
    if named in (None, ""):
        return None
    text = str(named)
    folder = _in_package(text) if text.startswith(_PACKAGE) else Path(job.cwd, text).expanduser()
    if not folder.is_dir():
        raise JobError(
            f"'model.repo' is {text}, and there is no folder {folder}; set model.repo to where the model's code is"
        )
    return folder.resolve()


def _in_package(text: str) -> Path:
    name, _, inside = text[len(_PACKAGE) :].partition("/")
    spec = importlib.util.find_spec(name) if name.isidentifier() else None
    if spec is None or not spec.submodule_search_locations:
        raise JobError(f"'model.repo' is {text}, and no package {name!r} is installed")
    return Path(next(iter(spec.submodule_search_locations)), inside)


def script(job: Job) -> Script:
    """Return what to execute and where.

    Raises
    ------
    JobError
        If the settings name neither a script nor a module or both, or what they name is not there.
    """
    model = job.model
    entry, module = model.get("entry"), model.get("module")
    if (entry is None) == (module is None):
        found = "neither" if entry is None else "both"
        raise JobError(f"set either 'model.entry' (a script) or 'model.module' (as after python -m), found {found}")
    folder = repository(job)
    base = folder or Path(job.cwd)
    cwd = base if model.get("cwd") is None else Path(job.cwd, str(model["cwd"])).expanduser()
    if not cwd.is_dir():
        raise JobError(f"'model.cwd' is {model['cwd']}, and there is no folder {cwd}")
    # Entries belong to the model's description, as `entry` does, so they start at its repository.
    extra = tuple(str(Path(base, str(item)).expanduser()) for item in model.get("pythonpath") or ())
    if entry is None:
        return Script(folder, None, str(module), cwd, (str(cwd), *extra))
    # Not resolved: a script reached by a link sees the link as its __file__, as under plain python.
    path = Path(base, str(entry)).expanduser()
    if not path.is_file():
        raise JobError(f"'model.entry' is {entry}, and there is no file {path}; it is looked for in {base}")
    return Script(folder, path, None, cwd, (str(path.resolve().parent), *extra))


def check_module(found: Script) -> None:
    """Refuse a module that is not there, without importing its packages.

    Raises
    ------
    JobError
        Naming the part of the dotted name that was not found.
    """
    if found.module is None:
        return
    top, *rest = found.module.split(".")
    before = list(sys.path)
    sys.path[:0] = found.import_path
    try:
        importlib.invalidate_caches()
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        spec = None
    finally:
        sys.path[:] = before
    name = top
    for part in rest:
        if spec is None or spec.submodule_search_locations is None:
            break
        name = f"{name}.{part}"
        # By its last part alone: a folder without __init__.py looks for its parent among the modules that are imported.
        spec = importlib.machinery.PathFinder.find_spec(part, list(spec.submodule_search_locations))
    if spec is None or name != found.module:
        raise JobError(f"'model.module' is {found.module}, and there is no module {name!r} in {found.import_path[0]}")
