# SPDX-License-Identifier: Apache-2.0
"""What the process runs on, and the checks at the level of the whole config."""

from __future__ import annotations

import os
import platform
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from turbo_hydra.engine.backend import Backend, of_process
from turbo_hydra.engine.checks import Check
from turbo_hydra.engine.distributions import installed_version
from turbo_hydra.engine.selection import Selection

_ALWAYS_SHOWN = ("torch", "numpy", "transformers", "triton", "lightning")


@dataclass(frozen=True)
class Repository:
    """State of a model's repository; None where git cannot tell."""

    path: Path
    commit: str | None
    dirty: bool | None


def read_repository(path: Path | None) -> Repository | None:
    """Commit and state of the working tree that `path` is the top of, None where it is none."""
    if path is None or not (path / ".git").exists():
        return None
    commit = _git(path, "rev-parse", "HEAD")
    changes = _git(path, "status", "--porcelain", "--untracked-files=no")
    return Repository(path, commit, None if changes is None else bool(changes))


def _git(path: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(path), *arguments], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def read_backend(selection: Selection) -> Backend:
    """The kind of device that this process uses."""
    return of_process(os.environ, selection.accelerator)


def snapshot(selection: Selection, repository: Repository | None, backend: Backend) -> dict[str, Any]:
    """Host, interpreter, device and versions, as the report shows them."""
    recorded = {item.dist for records in selection.evidence.values() for item in records if item.dist}
    names = sorted({*_ALWAYS_SHOWN, *recorded, *selection.dependencies})
    versions = {name: version for name in names if (version := installed_version(name)) is not None}
    return {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "python": platform.python_version(),
        "executable": sys.executable,
        "platform": platform.platform(),
        "backend": backend.name,
        "versions": versions,
        "repository": None
        if repository is None
        else {"path": str(repository.path), "commit": repository.commit, "dirty": repository.dirty},
    }


def config_checks(selection: Selection, repository: Repository | None, backend: Backend) -> list[Check]:
    """Dependency versions, kind of device, and commit and state of the repository."""
    checks = [_dependency(name, wanted) for name, wanted in selection.dependencies.items()]
    if selection.backends:
        checks.append(_backend(selection.backends, backend))
    if repository is None:
        if selection.commits:
            checks.append(Check("project.commit", "unknown", expected=", ".join(selection.commits), actual="no git"))
        return checks
    if selection.commits:
        checks.append(_commit(selection, repository))
    if repository.dirty:
        checks.append(
            Check(
                "project.dirty",
                "warning" if selection.allow_dirty else "fail",
                expected="no uncommitted change",
                actual=f"{repository.path} has uncommitted changes",
                forceable=True,
                message=f"{repository.path} has uncommitted changes; commit them, or set compatibility.allow_dirty",
            )
        )
    return checks


def _commit(selection: Selection, repository: Repository) -> Check:
    commit = repository.commit or "unknown"
    known = any(commit.startswith(item) for item in selection.commits)
    return Check(
        "project.commit",
        "pass" if known else "warning",
        expected=", ".join(selection.commits),
        actual=commit,
        message="" if known else f"the repository is at {commit[:12]}; the evidence of each target decides",
    )


def _backend(wanted: tuple[str, ...], backend: Backend) -> Check:
    if backend.name is None:
        return Check("backend", "unknown", expected=" or ".join(wanted), actual=backend.reason)
    fits = backend.name in wanted
    found = f"{backend.name} ({backend.reason})"
    return Check(
        "backend",
        "pass" if fits else "fail",
        expected=" or ".join(wanted),
        actual=found,
        forceable=True,
        message="" if fits else f"compatibility.backends asks for {' or '.join(wanted)}, found {found}",
    )


def _dependency(name: str, wanted: str) -> Check:
    version = installed_version(name)
    try:
        fits = version is not None and SpecifierSet(wanted).contains(version, prereleases=True)
    except InvalidSpecifier:
        return Check("dependency.version", "fail", expected=wanted, actual=f"{name}: not a version specifier")
    found = f"{name} {version}" if version else f"{name} is not installed"
    return Check(
        "dependency.version",
        "pass" if fits else "fail",
        expected=f"{name} {wanted}",
        actual=found,
        forceable=True,
        message="" if fits else f"compatibility.dependencies.{name} asks for '{wanted}', found {found}",
    )
