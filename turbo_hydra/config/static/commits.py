# SPDX-License-Identifier: Apache-2.0
"""A repository at a commit, read from git's objects: nothing is checked out."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import TracebackType

from turbo_hydra.config.git import git
from turbo_hydra.config.static.trees import SourceFile, decoded
from turbo_hydra.engine.errors import OptimizationConfigError


class Objects:
    """The texts of a repository's blobs, each read once; a context manager, since git stays running meanwhile.

    Parameters
    ----------
    repo : Path
        A working tree or a bare repository.
    """

    def __init__(self, repo: Path) -> None:
        self.repo = repo
        self._texts: dict[str, str] = {}
        self._written: dict[Path, dict[str, str]] = {}
        self._process = subprocess.Popen(
            ["git", "-C", str(repo), "cat-file", "--batch"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def __enter__(self) -> Objects:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate()

    def text(self, blob: str, file: str) -> str:
        """The source text of a blob; `file` is what messages call it."""
        if blob not in self._texts:
            self._texts[blob] = decoded(self.content(blob, file), file)
        return self._texts[blob]

    def write(self, folder: Path, blobs: Mapping[str, str]) -> None:
        """Make `folder` hold these blobs by their paths; of what was written there before only changes are touched."""
        before = self._written.get(folder, {})
        for path in before.keys() - blobs.keys():
            (folder / path).unlink()
        for path, blob in blobs.items():
            if before.get(path) != blob:
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                (folder / path).write_bytes(self.content(blob, path))
        self._written[folder] = dict(blobs)

    def content(self, blob: str, file: str) -> bytes:
        """The bytes of a blob."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(f"{blob}\n".encode())
        stdin.flush()
        head = stdout.readline().split()
        if len(head) != 3:
            raise OptimizationConfigError(f"{file}: the repository does not have its content ({blob[:12]}); fetch it")
        content = stdout.read(int(head[2]))
        stdout.read(1)
        return content


class Commit:
    """A source tree: a repository at one commit.

    Parameters
    ----------
    objects : Objects
        The repository.
    commit : str
        The commit.
    roots : sequence of str
        Where imports start, below the repository; `.` is its top.
    entry : str or None
        The script, which is the module `__main__`.
    """

    def __init__(self, objects: Objects, commit: str, roots: Sequence[str], entry: str | None = None) -> None:
        self._objects = objects
        self._commit = commit
        self._roots = ["" if root == "." else f"{root.strip('/')}/" for root in roots]
        self._entry = entry

    @cached_property
    def _blobs(self) -> dict[str, str]:
        """Path of each Python file to its blob."""
        listed = git(self._objects.repo, "ls-tree", "-r", "-z", "--full-tree", self._commit).split("\0")
        rows = (line.partition("\t") for line in listed if line)
        return {path: row.split()[2] for row, _, path in rows if path.endswith((".py", ".so"))}

    @cached_property
    def _folders(self) -> frozenset[str]:
        parts = (path.split("/") for path in self._blobs)
        return frozenset("/".join(item[:count]) for item in parts for count in range(1, len(item)))

    def find(self, module: str) -> SourceFile | None:
        """The file of a module, None where the commit has none of that name."""
        if module == "__main__":
            return None if self._entry not in self._blobs else self._source(module, self._entry, False)
        package = None
        for root in self._roots:
            base = root + module.replace(".", "/")
            for file, is_package in ((f"{base}/__init__.py", True), (f"{base}.py", False)):
                if file in self._blobs:
                    return self._source(module, file, is_package)
            if base in self._folders:
                package = package or SourceFile(module, base, None, True)
        return package

    def write_to(self, folder: Path) -> None:
        """Make `folder` hold the commit's Python files."""
        self._objects.write(folder, {path: blob for path, blob in self._blobs.items() if path.endswith(".py")})

    def _source(self, module: str, file: str, is_package: bool) -> SourceFile:
        return SourceFile(module, file, self._objects.text(self._blobs[file], file), is_package)
