# SPDX-License-Identifier: Apache-2.0
"""Making a namespace the one of a script, as Python itself would have made it."""

from __future__ import annotations

import builtins
import importlib.machinery
import importlib.util
import json
import os
import sys
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from typing import Any

from turbo_hydra.launch.paths import Script

# multiprocessing starts a spawned or forkserver child by importing the module that __main__.__spec__ names.
CHILD = "turbo_hydra.launch.child"
# Where that child finds what its parent was executing. Only `child` reads it: a program that the script starts, or a
# Python that inherits it for another reason, is not changed by it.
VARIABLE = "TURBO_HYDRA_MAIN"
# What PYTHONSAFEPATH was before a command of the user's was started with it; a rank puts it back.
SAFE_PATH = "TURBO_HYDRA_SAFE_PATH"


class ScriptSpec(ModuleSpec):
    """The spec of a script: names our module for multiprocessing, and is the script's own in all else.

    Parameters
    ----------
    path : Path
        The script.
    package : str
        The package that relative imports start from; empty for a script that has none.
    """

    def __init__(self, path: Path, package: str) -> None:
        super().__init__(CHILD, SourceFileLoader(CHILD, str(path)), origin=str(path))
        self.has_location = True
        self._package = package

    @property
    def parent(self) -> str:
        """The package of the script, not that of our module."""
        return self._package


@dataclass(frozen=True)
class Main:
    """What is executed as `__main__`.

    Attributes
    ----------
    path : Path
        The file.
    package : str or None
        Its package where it is a module, None for a script.
    """

    path: Path
    package: str | None

    @classmethod
    def of(cls, script: Script) -> Main:
        """Find the file of a script or a module. The packages that hold a module are imported, as `python -m` does.

        Raises
        ------
        ModuleNotFoundError
            If there is no such module.
        """
        if script.path is not None:
            return cls(script.path, None)
        name = str(script.module)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{name}.__main__")
        if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
            raise ModuleNotFoundError(f"no Python module named {name}", name=name)
        return cls(Path(spec.origin), spec.parent or "")

    def prepare(self, namespace: dict[str, Any], name: str) -> None:
        """Empty a namespace and give it what a module that starts has."""
        loader = SourceFileLoader(name, str(self.path))
        namespace.clear()
        namespace.update(
            __name__=name,
            __doc__=None,
            __package__=self.package,
            __loader__=loader,
            __spec__=ScriptSpec(self.path, self.package or ""),
            __file__=str(self.path),
            __cached__=None,
            __builtins__=builtins,
        )
        if name == "__main__":
            namespace["__annotations__"] = {}

    def announce(self, job_path: Path, environment: MutableMapping[str, str]) -> None:
        """Leave word for children that multiprocessing starts afresh."""
        environment[VARIABLE] = json.dumps({"job": str(job_path), "path": str(self.path), "package": self.package})

    @classmethod
    def announced(cls, environment: Mapping[str, str]) -> tuple[Main, Path]:
        """Read what a parent announced: what it executes, and its job.

        Raises
        ------
        RuntimeError
            If nothing was announced.
        """
        text = environment.get(VARIABLE)
        if text is None:
            raise RuntimeError(f"{CHILD} runs only in children of a rank; {VARIABLE} is not set")
        data = json.loads(text)
        return cls(Path(data["path"]), data["package"]), Path(data["job"])


def restore_safe_path(environment: MutableMapping[str, str]) -> None:
    """Give the script, and what it starts, the PYTHONSAFEPATH that the user had."""
    before = environment.pop(SAFE_PATH, None)
    if before == "":
        environment.pop("PYTHONSAFEPATH", None)
    elif before is not None:
        environment["PYTHONSAFEPATH"] = before


def replace_import_path(first: str, script: Script) -> None:
    """Put the script's folders where Python would have put them.

    Parameters
    ----------
    first : str
        The folder that `python -m` put first on our behalf (the one we were started in); it goes.
    script : Script
        Its own folder comes first, also where Python was told not to add one (`-P`): the settings name the script on
        purpose. Its other folders follow, and are in PYTHONPATH too, for programs that it starts.
    """
    if sys.path and sys.path[0] == first and not getattr(sys.flags, "safe_path", False):
        del sys.path[0]
    sys.path[:0] = script.import_path
    extra = script.import_path[1:]
    if extra:
        inherited = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = os.pathsep.join([*extra, *([inherited] if inherited else [])])
