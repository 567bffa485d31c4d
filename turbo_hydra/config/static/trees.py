# SPDX-License-Identifier: Apache-2.0
"""Where the text of a module is: a model's repository, the installed packages, a wheel."""

from __future__ import annotations

import importlib.util
import io
import tokenize
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from email.parser import HeaderParser
from functools import cached_property
from pathlib import Path
from typing import Protocol

from packaging.version import InvalidVersion, Version

from turbo_hydra.engine.distributions import distribution_of, installed_version
from turbo_hydra.engine.errors import OptimizationConfigError


@dataclass(frozen=True)
class SourceFile:
    """A module's file.

    Parameters
    ----------
    module : str
        Dotted name.
    file : str
        Path below the repository or the folder of installed packages, with `/`.
    text : str or None
        The source; None where there is a module without one (an extension, or a package without `__init__.py`).
    is_package : bool
        Whether names below it may be modules.
    dist, version : str or None
        The distribution it belongs to and its public version; None for a repository.
    problem : str
        Why there is no text, where that is not plain.
    """

    module: str
    file: str
    text: str | None
    is_package: bool
    dist: str | None = None
    version: str | None = None
    problem: str = ""


class SourceTree(Protocol):
    """Something that holds modules."""

    def find(self, module: str) -> SourceFile | None:
        """The file of a module, None where this tree has none of that name."""


def decoded(data: bytes, file: str) -> str:
    """Source text out of bytes, by its coding line, as Python reads it.

    Raises
    ------
    OptimizationConfigError
        If the bytes are not in that coding.
    """
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        return io.TextIOWrapper(io.BytesIO(data), encoding, newline=None).read()
    except (SyntaxError, UnicodeDecodeError) as error:
        raise OptimizationConfigError(f"{file} is not readable as Python source: {error}") from error


_EXTENSIONS = (".so", ".pyd", ".abi3.so")


def _in_folder(folder: Path, parts: list[str]) -> tuple[Path | None, bool] | None:
    """File of the module `parts` below `folder` and whether it is a package; None where it is not there."""
    base = folder.joinpath(*parts)
    if (base / "__init__.py").is_file():
        return base / "__init__.py", True
    file = base.with_name(base.name + ".py")
    if file.is_file():
        return file, False
    if base.parent.is_dir() and any(
        item.name.startswith(f"{base.name}.") and item.name.endswith(_EXTENSIONS) for item in base.parent.iterdir()
    ):
        return None, False
    if base.is_dir() and base.name.isidentifier():
        return None, True
    return None


@dataclass(frozen=True)
class Repository:
    """A model's repository.

    Parameters
    ----------
    root : Path
        Its folder; paths in evidence are below it.
    roots : tuple of Path
        Where imports start, in order: the folder of the script, then what is on its path.
    entry : Path or None
        The script, which is the module `__main__`.
    """

    root: Path
    roots: tuple[Path, ...]
    entry: Path | None = None

    def find(self, module: str) -> SourceFile | None:
        """The file of a module, None where the repository has none of that name."""
        if module == "__main__":
            return None if self.entry is None else self._file(module, self.entry, False)
        found_package = None
        for root in self.roots:
            found = _in_folder(root, module.split("."))
            if found is None:
                continue
            file, is_package = found
            if file is not None:
                return self._file(module, file, is_package)
            found_package = found_package or SourceFile(module, module.replace(".", "/"), None, is_package)
        return found_package

    def _file(self, module: str, file: Path, is_package: bool) -> SourceFile:
        try:
            name = file.resolve().relative_to(self.root.resolve()).as_posix()
        except ValueError:
            name = file.as_posix()
        return SourceFile(module, name, decoded(file.read_bytes(), name), is_package)


class Installed:
    """The packages that this interpreter can import. Finding a top-level name imports nothing."""

    def __init__(self) -> None:
        self._tops: dict[str, tuple[list[Path], Path | None]] = {}

    def find(self, module: str) -> SourceFile | None:
        """The file of an installed module, None where nothing of that name is installed."""
        top, *rest = module.split(".")
        folders, file = self._top(top)
        if not folders and file is None:
            return None
        dist, version = self.distribution(top)
        if not rest and file is not None:
            text = decoded(file.read_bytes(), str(file)) if file.suffix == ".py" else None
            name = f"{top}/__init__.py" if folders else file.name
            return SourceFile(module, name, text, bool(folders), dist, version)
        if not rest:
            return SourceFile(module, top, None, True, dist, version)
        for folder in folders:
            found = _in_folder(folder, rest)
            if found is not None:
                path, is_package = found
                if path is None:
                    return SourceFile(module, module.replace(".", "/"), None, is_package, dist, version)
                name = f"{top}/{path.relative_to(folder).as_posix()}"
                return SourceFile(module, name, decoded(path.read_bytes(), name), is_package, dist, version)
        return None

    def _top(self, top: str) -> tuple[list[Path], Path | None]:
        if top not in self._tops:
            try:
                spec = importlib.util.find_spec(top)
            except (ImportError, ValueError):
                spec = None
            if spec is None:
                self._tops[top] = [], None
            else:
                origin = Path(spec.origin) if spec.has_location and spec.origin else None
                self._tops[top] = [Path(place) for place in spec.submodule_search_locations or ()], origin
        return self._tops[top]

    def distribution(self, top: str) -> tuple[str | None, str | None]:
        """Name and public version of the distribution that a top-level package came with; None where none says so."""
        name = distribution_of(top)
        return name, None if name is None else installed_version(name)


def public_version(version: str) -> str:
    """`2.13.0` of `2.13.0+cpu`: builds of one version have the same Python files."""
    try:
        return Version(version).public
    except InvalidVersion:
        return version


class Wheel:
    """A wheel file, read without installing it.

    Parameters
    ----------
    path : Path
        The `.whl`.

    Raises
    ------
    OptimizationConfigError
        If it is no wheel.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._zip = zipfile.ZipFile(path)
            self._names = frozenset(self._zip.namelist())
            metadata = next(
                name for name in self._names if name.count("/") == 1 and name.endswith(".dist-info/METADATA")
            )
            headers = HeaderParser().parsestr(self._zip.read(metadata).decode("utf-8"))
        except (OSError, zipfile.BadZipFile, StopIteration) as error:
            reason = "it has no METADATA" if isinstance(error, StopIteration) else str(error)
            raise OptimizationConfigError(f"{path} is not a readable wheel: {reason}") from error
        self.dist: str = headers["Name"]
        self.version: str = public_version(headers["Version"])

    def find(self, module: str) -> SourceFile | None:
        """The file of a module in the wheel, None where it has none of that name."""
        base = module.replace(".", "/")
        for name, is_package in ((f"{base}/__init__.py", True), (f"{base}.py", False)):
            if name in self._names:
                return self._source(module, name, decoded(self._zip.read(name), name), is_package)
        if any(name.startswith(f"{base}.") and name.endswith(_EXTENSIONS) for name in self._siblings(base)):
            return self._source(module, base, None, False)
        if base in self._folders:
            return self._source(module, base, None, True)
        return None

    def _source(self, module: str, file: str, text: str | None, is_package: bool) -> SourceFile:
        return SourceFile(module, file, text, is_package, self.dist, self.version)

    @cached_property
    def _folders(self) -> frozenset[str]:
        return frozenset(
            "/".join(parts[:count])
            for parts in (name.split("/") for name in self._names)
            for count in range(1, len(parts))
        )

    def _siblings(self, base: str) -> Iterable[str]:
        return (name for name in self._names if name.startswith(f"{base}."))
