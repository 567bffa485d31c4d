# SPDX-License-Identifier: Apache-2.0
"""Installed distributions: their versions, and which of them a module comes from."""

from __future__ import annotations

import functools
import importlib.metadata
import inspect
import sys

from packaging.version import InvalidVersion, Version


@functools.cache
def installed_version(dist: str) -> str | None:
    """The public version of an installed distribution, None where there is none; `python` is the interpreter's."""
    if dist == "python":
        return f"{sys.version_info.major}.{sys.version_info.minor}"
    try:
        version = importlib.metadata.version(dist)
    except importlib.metadata.PackageNotFoundError:
        return None
    try:
        return Version(version).public
    except InvalidVersion:
        return version


def distribution_of(module: str) -> str | None:
    """Name of the distribution that installed the top package of `module`, None where none did."""
    return _distributions().get(module.split(".")[0])


@functools.cache
def _distributions() -> dict[str, str]:
    found = {top: names[0] for top, names in importlib.metadata.packages_distributions().items()}
    if sys.version_info < (3, 11):
        # Python 3.10 looks at a file that not every build tool writes.
        for dist in importlib.metadata.distributions():
            for file in () if dist.read_text("top_level.txt") else dist.files or ():
                top = file.parts[0] if len(file.parts) > 1 else inspect.getmodulename(file.name)
                if top and top.isidentifier():
                    found.setdefault(top, dist.metadata["Name"])
    return found
