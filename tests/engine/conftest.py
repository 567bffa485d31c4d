# SPDX-License-Identifier: Apache-2.0
"""A laboratory for the engine: small packages in a folder, real evidence, real applies; all taken back after."""

from __future__ import annotations

import importlib
import itertools
import linecache
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from turbo_hydra.engine import plan
from turbo_hydra.engine.apply import Engine
from turbo_hydra.engine.checks import Check
from turbo_hydra.engine.declarations import Group, Member, replace, wrap
from turbo_hydra.engine.evidence import EvidenceRecord, LiveReader
from turbo_hydra.engine.objects import load_object
from turbo_hydra.engine.planned import Plan, PreparedGroup
from turbo_hydra.engine.registry import Registry
from turbo_hydra.engine.selection import Selection
from turbo_hydra.engine.targets import ResolutionError, resolve

_numbers = itertools.count()


@dataclass
class Lab:
    """One package of its own name, its groups, and what was applied to it.

    Paths are given without the package: `lib.f` is the target `<package>.lib.f`. A path that starts with `/` is taken
    as it stands. Modules are written with relative imports, so that none needs to know the package's name.
    """

    folder: Path
    package: str = field(default_factory=lambda: f"lab{next(_numbers)}")
    registry: Registry = field(default_factory=Registry)
    evidence: dict[str, tuple[EvidenceRecord, ...]] = field(default_factory=dict)
    engines: list[Engine] = field(default_factory=list)
    planned: Plan | None = None

    def __post_init__(self) -> None:
        self.write("__init__", "")

    def write(self, name: str, text: str) -> Path:
        """Write the module `name`; a name that ends with `/` is a package."""
        parts = name.rstrip("/").split(".")
        path = self.folder.joinpath(self.package, *parts)
        path = path / "__init__.py" if name.endswith("/") else path.with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text), encoding="utf-8")
        importlib.invalidate_caches()
        linecache.checkcache(str(path))
        return path

    def path(self, dotted: str) -> str:
        """The full path of `dotted`."""
        return dotted[1:] if dotted.startswith("/") else f"{self.package}.{dotted}"

    def load(self, module: str) -> Any:
        """Import a module."""
        return importlib.import_module(self.path(module))

    def get(self, dotted: str) -> Any:
        """The object at a path."""
        return load_object(self.path(dotted))

    def forget(self) -> None:
        """Let the package's modules be imported anew."""
        for name in [name for name in sys.modules if name.split(".")[0] == self.package]:
            del sys.modules[name]

    def replace(self, target: str, replacement: str, **settings: Any) -> Member:
        """`turbo_hydra.replace` with paths below the package."""
        return replace(self.path(target), self.path(replacement), **self._settings(settings))

    def wrap(self, target: str, factory: str, **settings: Any) -> Member:
        """`turbo_hydra.wrap` with paths below the package."""
        return wrap(self.path(target), self.path(factory), **self._settings(settings))

    def _settings(self, settings: dict[str, Any]) -> dict[str, Any]:
        if "aliases" in settings:
            settings["aliases"] = tuple(self.path(item) for item in settings["aliases"])
        if settings.get("runtime_condition"):
            settings["runtime_condition"] = self.path(settings["runtime_condition"])
        return settings

    def group(self, name: str, *members: Member, **settings: Any) -> Group:
        """Declare the group `lab.<name>`."""
        if "depends_on" in settings:
            settings["depends_on"] = tuple(f"lab.{item}" for item in settings["depends_on"])
        if settings.get("compatibility_check"):
            settings["compatibility_check"] = self.path(settings["compatibility_check"])
        return self.registry.group(f"lab.{name}", *members, **settings)

    def record(self, *targets: str) -> None:
        """Take evidence of `targets`, or of all declared ones that have none; modules loaded for it are forgotten."""
        loaded = set(sys.modules)
        paths = [self.path(item) for item in targets] or [
            member.target
            for group in self.registry.groups.values()
            for member in group.members
            if member.target not in self.evidence
        ]
        for path in paths:
            try:
                site = resolve(path, "global")
            except (ResolutionError, ImportError, RuntimeError):
                continue
            live = LiveReader().read(site.raw, site.name)
            self.evidence[path] = (EvidenceRecord(source=live.source, ast=live.ast, chain=live.chain),)
        for name in [name for name in sys.modules if name not in loaded and name.split(".")[0] == self.package]:
            del sys.modules[name]

    def selection(self, **settings: Any) -> Selection:
        """All groups on, with evidence of all targets unless `evidence` is given."""
        if "evidence" not in settings:
            self.record()
        settings.setdefault("groups", dict.fromkeys(self.registry.groups, True))
        settings.setdefault("evidence", dict(self.evidence))
        for key in ("force", "disable", "only"):
            if settings.get(key):
                settings[key] = tuple(item if "*" in item else f"lab.{item}" for item in settings[key])
        return Selection(**settings)

    def plan(self, **settings: Any) -> Plan:
        """Make the plan."""
        self.planned = plan.prepare(self.registry, self.selection(**settings))
        return self.planned

    def engine(self, **settings: Any) -> Engine:
        """Make the plan and the engine that would apply it."""
        made = Engine(self.plan(**settings), run_id="lab", describe={})
        self.engines.append(made)
        return made

    def apply(self, **settings: Any) -> Engine:
        """Apply, and return the engine."""
        made = self.engine(**settings)
        made.apply()
        return made

    def decision(self, name: str = "it") -> str:
        """The last plan's decision on the group `lab.<name>`."""
        return self._prepared(name).decision

    def codes(self, name: str = "it") -> list[str]:
        """Codes of the group's failed checks."""
        return [check.code for check in self._prepared(name).all_checks if check.status == "fail"]

    def checks(self, name: str = "it") -> dict[str, Check]:
        """The group's checks by code."""
        return {check.code: check for check in self._prepared(name).all_checks}

    def message(self, name: str = "it") -> str:
        """Message of the group's first failed check."""
        return next(check.message for check in self._prepared(name).all_checks if check.status == "fail")

    def status(self, name: str = "it") -> str:
        """What became of the group at the last apply."""
        return self.engines[-1].outcomes[f"lab.{name}"].status

    def member(self, name: str = "it", index: int = 0) -> dict[str, Any]:
        """The report's entry of one member of the group, as it is now."""
        entry = next(item for item in self.engines[-1].report.execution if item["group"] == f"lab.{name}")
        found: dict[str, Any] = entry["members"][index]
        return found

    def hits(self, name: str = "it", index: int = 0) -> tuple[int, int]:
        """Calls of one member's replacement and original."""
        found = self.member(name, index)["hits"]
        return found["replacement"], found["original"]

    def _prepared(self, name: str) -> PreparedGroup:
        if self.planned is None:
            raise LookupError("no plan was made")
        return self.planned.groups[f"lab.{name}"]


@pytest.fixture
def make_lab(tmp_path: Path) -> Iterator[Callable[[], Lab]]:
    """Make laboratories; what they applied is undone, and their modules are forgotten."""
    made: list[Lab] = []
    path = list(sys.path)
    sys.path.insert(0, str(tmp_path))

    def make() -> Lab:
        made.append(Lab(tmp_path))
        return made[-1]

    yield make
    for lab in made:
        for engine in reversed(lab.engines):
            engine.undo()
        lab.forget()
    sys.path[:] = path
    importlib.invalidate_caches()


@pytest.fixture
def lab(make_lab: Callable[[], Lab]) -> Lab:
    """One laboratory."""
    return make_lab()
