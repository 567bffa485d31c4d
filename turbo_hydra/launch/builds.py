# SPDX-License-Identifier: Apache-2.0
"""Files that are built once from sources and loaded many times: by all ranks, by all jobs of a sweep."""

from __future__ import annotations

import hashlib
import logging
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from filelock import FileLock

from turbo_hydra.launch import caches, files, private
from turbo_hydra.launch.private import CacheRefused, private_folder

log = logging.getLogger("turbo_hydra")

VARIABLE = "TURBO_HYDRA_BUILDS_DIR"


def digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    found = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            found.update(block)
    return found.hexdigest()


class Builds:
    """Built files in a private folder.

    Parameters
    ----------
    folder : Path, optional
        Where they are kept; by default where the launcher said, else the user's folder for this machine and these
        versions. One that is not private is refused: a fresh one is used, with a warning.
    """

    def __init__(self, folder: Path | None = None) -> None:
        told = os.environ.get(VARIABLE)
        wanted = folder or (
            Path(told) if told else caches.default_folder() / caches.key(caches.ingredients(os.environ))
        )
        try:
            if folder is None and not told:
                private_folder(wanted.parent)
            self.folder = private_folder(wanted)
        except (CacheRefused, OSError) as problem:
            self.folder = Path(tempfile.mkdtemp(prefix="turbo_hydra-builds-"))
            log.warning("built files: %s; this process uses %s", problem, self.folder)

    def file(self, name: str, sources: Mapping[str, str], build: Callable[[Path], None]) -> Path:
        """Return a built file, built now if it is not there or is not what was built.

        Parameters
        ----------
        name : str
            Its name, such as `fused_norm.so`.
        sources : mapping of str to str
            Whatever it is made from: texts by name, compiler and flags among them. Others give another file.
        build : callable
            Writes the file at the path that it is given.

        Raises
        ------
        Exception
            What `build` raises; nothing is kept then.
        """
        text = "\0".join(f"{key}\0{value}" for key, value in sorted(sources.items()))
        folder = self.folder / f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
        # One builds, the others wait: eight ranks start at once.
        with FileLock(f"{folder}.lock", mode=0o600):
            if self._is_as_recorded(folder, name):
                return folder / name
            fresh = Path(tempfile.mkdtemp(prefix="tmp", dir=self.folder))
            try:
                build(fresh / name)
                files.write_json(fresh / "record.json", {"file": name, "sha256": digest(fresh / name)})
                private.remove(folder)
                fresh.rename(folder)
            finally:
                private.remove(fresh)
        return folder / name

    def _is_as_recorded(self, folder: Path, name: str) -> bool:
        record = files.read_json(folder / "record.json")
        path = folder / name
        if not isinstance(record, dict) or not path.is_file():
            return False
        try:
            private.verify(folder)
        except CacheRefused as problem:
            log.warning("built file %s is built again: %s", path, problem)
            return False
        if record.get("sha256") != digest(path):
            log.warning("built file %s is not what was built, and is built again", path)
            return False
        return True
