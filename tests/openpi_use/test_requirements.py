# SPDX-License-Identifier: Apache-2.0
"""The example's requirements are what OpenPI's lock file has; what differs says why on its line."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement

HERE = Path(__file__).resolve().parent
LINES = (HERE.parents[1] / "examples" / "openpi" / "requirements.txt").read_text(encoding="utf-8").splitlines()
LOCK: dict[str, Any] = json.loads((HERE / "upstream_lock.json").read_text(encoding="utf-8"))
LEFT_OUT = re.compile(r"# left out: (?P<name>[a-z0-9-]+)==(?P<version>\S+): (?P<why>.{10,})")


def required() -> Iterator[tuple[Requirement, str]]:
    """Each requirement, with the comment on its line."""
    for line in LINES:
        if line and not line.startswith("#"):
            text, _, comment = line.partition("  # ")
            yield Requirement(text), comment


def left_out() -> dict[str, str]:
    return {found["name"]: found["version"] for line in LINES if (found := LEFT_OUT.fullmatch(line))}


def on(python: str) -> dict[str, Requirement]:
    """What is installed on a version of Python."""
    environment = {"python_version": python, "python_full_version": f"{python}.0"}
    found = [item for item, _ in required() if item.marker is None or item.marker.evaluate(environment)]
    names = [item.name for item in found]
    assert len(set(names)) == len(names), "each once"
    return {item.name: item for item in found}


def is_locked(item: Requirement) -> bool:
    if item.name in LOCK["git"]:
        return item.url == f"git+{LOCK['git'][item.name]}"
    version = LOCK["packages"].get(item.name)
    return str(item.specifier) == f"=={version}"


def test_every_package_of_the_lock_is_required_or_left_out_with_a_reason() -> None:
    names = {item.name for item, _ in required()}
    assert not names & set(left_out())
    assert names | set(left_out()) == set(LOCK["packages"])
    assert left_out().items() <= LOCK["packages"].items()


def test_versions_are_those_of_the_lock_or_say_why_not() -> None:
    for item, comment in required():
        if not is_locked(item) or item.marker is not None:
            assert re.fullmatch(r"differs: .{10,}", comment), item


def test_on_openpis_own_python_nothing_differs() -> None:
    installed = on("3.11")
    assert set(installed) == set(LOCK["packages"]) - set(left_out())
    assert [name for name, item in installed.items() if not is_locked(item)] == []


def test_the_overrides_of_openpi_are_there() -> None:
    assert LOCK["overrides"] == {"ml-dtypes": "0.4.1", "tensorstore": "0.1.74"}
    for python in ("3.10", "3.11"):
        for name, version in LOCK["overrides"].items():
            assert str(on(python)[name].specifier) == f"=={version}"


def test_nothing_of_a_machine_stands_in_it() -> None:
    for item, _ in required():
        assert item.url is None or item.url.startswith("git+https://github.com/")
    assert not [line for line in LINES if line.startswith("-")], "no options: neither indexes nor links"
    assert not [line for line in LINES if line != line.rstrip()]


def test_turbo_hydra_itself_fits_in(project_root: Path) -> None:
    text = (project_root / "pyproject.toml").read_text(encoding="utf-8")
    inner = text.partition("\ndependencies = [")[2].partition("]")[0]
    ours = [Requirement(line.strip(' ",')) for line in inner.strip().splitlines()]
    assert ours
    for need in ours:
        for item in (item for item, _ in required() if item.name == need.name):
            (version,) = item.specifier
            assert need.specifier.contains(version.version), f"{need} against {item}"


def closure(lock: dict[str, Any]) -> dict[str, str]:
    """What installing `openpi` brings, by the lock: name to version."""
    known: dict[str, list[dict[str, Any]]] = {}
    for package in lock["package"]:
        known.setdefault(package["name"], []).append(package)
    environment = {"extra": "", **LOCK["for"], "python_version": "3.11"}
    found: dict[str, str] = {}
    done: set[tuple[str, str]] = set()
    waiting: list[dict[str, Any]] = [{"name": "openpi"}]
    while waiting:
        need = waiting.pop()
        if "marker" in need and not Marker(need["marker"]).evaluate(environment):
            continue
        versions = [item for item in known[need["name"]] if need.get("version") in (None, item["version"])]
        (package,) = versions
        for extra in ("", *need.get("extra", ())):
            if (package["name"], extra) not in done:
                done.add((package["name"], extra))
                optional = package.get("optional-dependencies", {})
                waiting += optional.get(extra, []) if extra else package.get("dependencies", [])
        found[package["name"]] = package["version"]
    return found


def test_the_recorded_versions_are_those_of_the_lock_file_itself() -> None:
    checkout = os.environ.get("OPENPI_REPO")
    file = Path(checkout or ".", "uv.lock")
    if checkout is None or not file.is_file():
        pytest.skip("OPENPI_REPO names no checkout of OpenPI, whose uv.lock would be compared")
    if sys.version_info < (3, 11):
        pytest.skip("reading a lock file needs tomllib, which came with Python 3.11")
    import tomllib

    content = file.read_bytes()
    if hashlib.sha256(content).hexdigest() != LOCK["sha256"]:
        pytest.skip(f"OPENPI_REPO is not at {LOCK['commit']}: its uv.lock is another")
    assert closure(tomllib.loads(content.decode())) == LOCK["packages"]
