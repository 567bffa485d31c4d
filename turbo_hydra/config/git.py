# SPDX-License-Identifier: Apache-2.0
"""What git says about a model's repository."""

from __future__ import annotations

import re
import subprocess
from fnmatch import fnmatchcase
from pathlib import Path

from turbo_hydra.engine.errors import OptimizationConfigError

_COMPILED = ("__pycache__/*.pyc", "*/__pycache__/*.pyc")
_CREDENTIALS = re.compile(r"^(?P<scheme>\w+://)[^/@]*@")


def git(folder: Path, *arguments: str) -> str:
    """Output of a git command.

    Raises
    ------
    OptimizationConfigError
        If git is missing or refuses; the message is git's first line.
    """
    try:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=False)
    except OSError as error:
        raise OptimizationConfigError(f"git cannot be run: {error.strerror}") from error
    if done.returncode != 0:
        said = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[0]
        raise OptimizationConfigError(f"git {arguments[0]} in {folder}: {said.removeprefix('fatal: ')}")
    return done.stdout


def head(folder: Path) -> str:
    """The commit that is checked out."""
    return git(folder, "rev-parse", "--verify", "HEAD").strip()


def changes(folder: Path, allowed: tuple[str, ...] = ()) -> list[str]:
    """Paths that differ from HEAD or that git does not know, but for untracked ones that match a glob.

    What Python compiled is no change: it writes that wherever code is imported from.
    """
    found = []
    entries = git(folder, "status", "--porcelain", "-z", "--untracked-files=all", "--", ".").split("\0")
    while entries:
        entry = entries.pop(0)
        if not entry:
            continue
        state, path = entry[:2], entry[3:]
        if "R" in state or "C" in state:
            entries.pop(0)  # where it was before
        if state == "??" and any(fnmatchcase(path, pattern) for pattern in (*allowed, *_COMPILED)):
            continue
        found.append(path)
    return sorted(found)


def origin(folder: Path) -> str | None:
    """Where the repository was cloned from, without credentials; None where it says nothing or names a local folder."""
    try:
        url = git(folder, "remote", "get-url", "origin").strip()
    except OptimizationConfigError:
        return None
    if url.startswith(("/", ".", "file:")):
        return None
    return _CREDENTIALS.sub(r"\g<scheme>", url)


def check_commit(folder: Path, commit: str, allowed: tuple[str, ...] = ()) -> str:
    """The full name of HEAD, if it is `commit` (whole or its beginning) and nothing is changed.

    Raises
    ------
    OptimizationConfigError
        If HEAD is another commit, or the tree is not clean.
    """
    if not re.fullmatch(r"[0-9a-fA-F]{7,64}", commit):
        raise OptimizationConfigError(f"--commit takes a commit's hash, 7 digits or more, found '{commit}'")
    found = head(folder)
    if not found.startswith(commit.lower()):
        raise OptimizationConfigError(
            f"{folder} is at {found}, expected {commit}; check that commit out, or give its hash"
        )
    changed = changes(folder, allowed)
    if changed:
        more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
        raise OptimizationConfigError(
            f"{folder} has changes that are not committed: {', '.join(changed[:3])}{more}; commit or remove them"
            " (--untracked GLOB names what may lie there)"
        )
    return found
