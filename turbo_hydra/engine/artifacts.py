# SPDX-License-Identifier: Apache-2.0
"""Evidence of entries that have no Python source: what the distribution's record says of its binaries.

`artifact-v1` is the SHA-256 of the distribution's name and public version and of the recorded hash of each shared
library in it, in order of their paths. All libraries count, since an extension of a few kilobytes may only link what
does the work; none is read, since a record has their hashes already.
"""

from __future__ import annotations

import csv
import hashlib
import importlib.metadata
import re
from pathlib import Path

from turbo_hydra.engine.canonical import ARTIFACT, digest
from turbo_hydra.engine.distributions import distribution_of, installed_version

_BINARY = re.compile(r"\.(so|pyd|dylib|dll)(\.[0-9.]+)?$")


def artifact_hash(module: str, file: str | None) -> str | None:
    """The `artifact-v1` hash of what lies behind a module.

    Parameters
    ----------
    module : str
        Name of the extension module.
    file : str or None
        Its file; hashed itself where no distribution has a record of the module.

    Returns
    -------
    str or None
        None where there is neither a record nor a file.
    """
    dist = distribution_of(module)
    if dist is not None:
        lines = recorded_binaries(importlib.metadata.distribution(dist).read_text("RECORD") or "")
        if lines:
            return digest_of(dist, installed_version(dist) or "", lines)
    if file is None or not _BINARY.search(file):
        return None
    content = hashlib.sha256(Path(file).read_bytes()).hexdigest()
    return digest_of("", "", [f"{Path(file).name},sha256={content}"])


def recorded_binaries(record: str) -> list[str]:
    """`path,hash` of each shared library in the text of a RECORD file, sorted."""
    rows = [row for row in csv.reader(record.splitlines()) if len(row) > 1 and _BINARY.search(row[0])]
    return sorted(f"{row[0]},{row[1]}" for row in rows if row[1])


def digest_of(dist: str, version: str, lines: list[str]) -> str:
    """The hash of a distribution's name, public version and binaries."""
    return digest(ARTIFACT, "\n".join([f"{dist}=={version}", *lines]))
