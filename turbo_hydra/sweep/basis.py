# SPDX-License-Identifier: Apache-2.0
"""What results must have in common to be compared: configuration, evidence, code, versions and device."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import json
import os
import platform
import re
import socket
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from turbo_hydra.engine.distributions import installed_version
from turbo_hydra.engine.registry import Registry
from turbo_hydra.launch import paths
from turbo_hydra.launch.job import Job
from turbo_hydra.launch.secrets import is_secret
from turbo_hydra.sweep.rows import Row, Toggle
from turbo_hydra.sweep.settings import AblationSettings

# They change nothing of what is measured.
_RUNTIME_ASIDE = ("logs", "timeouts", "rendezvous")
_MEASURE_ASIDE = ("enabled", "progress", "progress_interval", "writers", "interval", "stop_after")
_VERSIONS = ("torch", "numpy", "triton", "lightning", "transformers", "turbo_hydra")
_VARIABLES = re.compile(r"(OMP|MKL|KMP|CUDA|HIP|ROCR|PYTORCH|TORCH|TRITON|NCCL|ATEN)_\w+")
_MOST_FILES = 5000


def basis(
    job: Job, settings: AblationSettings, toggles: Iterable[Toggle], registry: Registry, evidence: Iterable[Path]
) -> dict[str, Any]:
    """Plain data; results of two sweeps may stand in one table only if theirs are equal.

    Parameters
    ----------
    job : Job
        The run as it is without the sweep.
    settings : AblationSettings
        Of which only what changes a run counts.
    toggles : iterable of Toggle
        The groups that rows switch, whose state is part of a row and not of this.
    registry : Registry
        The groups of the config's catalogs.
    evidence : iterable of Path
        Evidence files of the config.
    """
    switched = {toggle.id for toggle in toggles}
    optimization = {key: value for key, value in job.optimization.items() if key not in ("evidence", "log_report")}
    optimization["groups"] = {
        f"{catalog}.{name}": on
        for catalog, groups in (job.optimization.get("groups") or {}).items()
        for name, on in groups.items()
        if f"{catalog}.{name}" not in switched
    }
    repository = paths.repository(job)
    return {
        "model": job.model,
        "runtime": _public({key: value for key, value in job.runtime.items() if key not in _RUNTIME_ASIDE}),
        "measure": {key: value for key, value in job.measure.items() if key not in _MEASURE_ASIDE},
        "steps": settings.steps,
        # Jobs side by side slow each other down.
        "parallel_jobs": settings.parallel_jobs,
        "loss_steps": settings.loss_steps,
        "optimization": optimization,
        "evidence": [_digest(path.read_bytes()) for path in evidence if path.is_file()],
        "replacements": replacements(registry),
        "repository": None if repository is None else _repository(repository),
        "versions": _versions(job),
        "device": device(),
        "environment": {
            name: value
            for name, value in sorted(os.environ.items())
            if _VARIABLES.fullmatch(name) and not is_secret(name)
        },
    }


def key(data: Any) -> str:
    """A short name of plain data; of other data another."""
    return _digest(json.dumps(data, sort_keys=True, default=str).encode())[:12]


def row_key(row: Row, basis_key: str) -> str:
    """The name of a row's folder: readable, and of another row or basis another."""
    words = re.sub(r"[^\w.+]+", "-", row.name).strip("-")[:60]
    return f"{words}-{key([basis_key, row.on, row.again])[:8]}"


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _public(runtime: dict[str, Any]) -> dict[str, Any]:
    environment = dict(runtime.get("environment") or {})
    named = environment.get("set") or {}
    environment["set"] = {name: value for name, value in named.items() if not is_secret(str(name))}
    return {**runtime, "environment": environment}


def replacements(registry: Registry) -> dict[str, str]:
    """Digest of each file of ours or of another package that the groups' code comes from, catalogs included.

    Code that only a rank can import (the model repository's own) is not among them; the repository's state is.
    """
    waiting = [group.catalog for group in registry.groups.values()]
    waiting += [
        path.rpartition(".")[0]
        for group in registry.groups.values()
        for member in group.members
        for path in (member.replacement, member.runtime_condition or "")
        if "." in path
    ]
    tops = {name.partition(".")[0] for name in waiting}
    found: dict[str, str] = {}
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in seen or not _holds_groups(name, tops):
            continue
        seen.add(name)
        file = _file(name)
        if file is None:
            continue
        data = file.read_bytes()
        found[name] = _digest(data)[:16]
        waiting += _imports(name, file, data)
    return dict(sorted(found.items()))


def _holds_groups(name: str, tops: set[str]) -> bool:
    """Whether a module may be code of groups: of our own package, only catalogs and kernels."""
    parts = name.split(".")
    if parts[0] == "turbo_hydra":
        return len(parts) > 1 and parts[1] in {"catalogs", "kernels"}
    return parts[0] in tops and parts[0] not in {"torch", "numpy"}


def _file(name: str) -> Path | None:
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, AttributeError, ValueError):
        return None
    return Path(spec.origin) if spec and spec.origin and spec.origin.endswith(".py") else None


def _imports(name: str, file: Path, data: bytes) -> Iterator[str]:
    package = name if file.name == "__init__.py" else name.rpartition(".")[0]
    try:
        tree = ast.parse(data)
    except SyntaxError:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, *([base] if base else [])])
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def _repository(path: Path) -> dict[str, Any]:
    """State of the training code: its commit and what is not committed, or a digest of its Python files."""
    if (path / ".git").exists():
        said = [_git(path, "rev-parse", "HEAD"), _git(path, "diff", "HEAD")]
        if all(text is not None for text in said):
            return {"path": str(path), "commit": said[0], "changes": _digest(str(said[1]).encode())[:16]}
    files = sorted(path.rglob("*.py"))[:_MOST_FILES]
    text = b"".join(
        str(file.relative_to(path)).encode() + b"\0" + file.read_bytes() for file in files if file.is_file()
    )
    return {"path": str(path), "files": _digest(text)[:16]}


def _git(path: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(path), *arguments],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=60,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _versions(job: Job) -> dict[str, str]:
    named = (job.optimization.get("compatibility") or {}).get("dependencies") or {}
    found = {name: installed_version(name) for name in sorted({*_VERSIONS, *map(str, named)})}
    return {"python": platform.python_version(), **{name: text for name, text in found.items() if text}}


def device() -> dict[str, Any]:
    """What the ranks compute on, without asking torch."""
    return {"host": socket.gethostname(), "cpu": _cpu(), "cpus": _cpus(), "accelerators": accelerators()}


def _cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _cpu() -> str:
    found = re.search(r"^model name\s*:\s*(.+)$", _text(Path("/proc/cpuinfo")), re.MULTILINE)
    return found[1].strip() if found else platform.processor() or platform.machine()


def accelerators() -> list[str]:
    """Names of the cards that the kernel's drivers tell of."""
    names = []
    for path in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information")):
        found = re.search(r"^Model:\s*(.+)$", _text(path), re.MULTILINE)
        names.append(found[1].strip() if found else "NVIDIA")
    for path in sorted(Path("/sys/class/kfd/kfd/topology/nodes").glob("*/properties")):
        found = re.search(r"^simd_count (\d+)$", _text(path), re.MULTILINE)
        if found and int(found[1]):
            names.append(_text(path.with_name("name")).strip() or "AMD")
    return names


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Dotted names of what differs between two bases."""
    return sorted(_differences(one, other, ""))


def _differences(one: Any, other: Any, prefix: str) -> Iterator[str]:
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for name in {*one, *other}:
            yield from _differences(one.get(name), other.get(name), f"{prefix}.{name}" if prefix else str(name))
    elif one != other:
        yield prefix
