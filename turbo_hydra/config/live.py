# SPDX-License-Identifier: Apache-2.0
"""Live evidence: targets are imported in a child process, so that what they print or break stays there."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from turbo_hydra.config.static.trees import Installed, Repository
from turbo_hydra.engine.errors import OptimizationConfigError, TurboHydraError
from turbo_hydra.engine.evidence import EvidenceRecord, LiveEvidence, LiveReader
from turbo_hydra.engine.import_members import PreparedImport
from turbo_hydra.engine.imports import finder, made_file
from turbo_hydra.engine.options import make_options
from turbo_hydra.engine.registry import Registry
from turbo_hydra.engine.targets import ResolutionError, resolve


@dataclass(frozen=True)
class ImportGroups:
    """The import groups that are in force when targets are imported.

    Parameters
    ----------
    catalogs : sequence of str
        Modules that declare them.
    ids : sequence of str
        In the order in which they take effect.
    options : mapping
        Group id to options.
    """

    catalogs: Sequence[str] = ()
    ids: Sequence[str] = ()
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class Live:
    """What was found of targets by importing them.

    Parameters
    ----------
    records : dict
        Target to its evidence.
    reasons : dict
        Target to the reason why it has none.
    missing : frozenset of str
        Those of the latter that do not exist.
    """

    records: Mapping[str, EvidenceRecord] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)
    missing: frozenset[str] = frozenset()


def live_records(
    targets: Sequence[str], root: Path, roots: Sequence[Path], imports: ImportGroups | None = None
) -> Live:
    """The evidence of targets as they are when imported.

    Parameters
    ----------
    targets : sequence of str
        Dotted paths.
    root : Path
        The model's repository.
    roots : sequence of Path
        What goes before the installed packages on the import path.
    imports : ImportGroups, optional
        The import groups that are in force.

    Raises
    ------
    OptimizationConfigError
        If the child process ends without an answer, or an import group cannot take effect.
    """
    package = Path(__file__).absolute().parent.parent.parent
    path = os.pathsep.join([*map(str, roots), *filter(None, [os.environ.get("PYTHONPATH")]), str(package)])
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder, "answer.json")
        request = json.dumps(
            {
                "targets": list(targets),
                "root": str(root.absolute()),
                "roots": list(map(str, roots)),
                "path": [item for item in sys.path if item],
                "answer": str(answer),
                "imports": dataclasses.asdict(imports or ImportGroups()),
            }
        )
        done = subprocess.run(
            [sys.executable, "-m", __name__],
            input=request,
            # Nothing is left in the model's repository, which must stay clean.
            env={**os.environ, "PYTHONPATH": path, "PYTHONSAFEPATH": "1", "PYTHONDONTWRITEBYTECODE": "1"},
            cwd=root,
            capture_output=True,
            text=True,
            check=False,
        )
        if not answer.is_file():
            said = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
            raise OptimizationConfigError(
                f"importing the targets ended with status {done.returncode}: {said}; --static imports nothing"
            )
        found: Mapping[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
    if found["problem"]:
        raise OptimizationConfigError(found["problem"])
    records = {target: EvidenceRecord.from_dict(item) for target, item in found["records"].items()}
    return Live(records, found["reasons"], frozenset(found["missing"]))


def main() -> None:
    """Answer one request on stdin."""
    request = json.load(sys.stdin)
    # A catalog may be found only where the asking process looks; last, so that the order of all else is kept.
    sys.path += [item for item in request["path"] if item not in sys.path]
    records: dict[str, Any] = {}
    reasons: dict[str, str] = {}
    missing: list[str] = []
    problem = ""
    root = Path(request["root"])
    try:
        _put_in_force(ImportGroups(**request["imports"]), root)
        files = _Files(root, [Path(item) for item in request["roots"]])
        reader = LiveReader()
        for target in request["targets"]:
            try:
                found = _read(target, reader)
            except Exception as error:
                # Whatever a module raises while it is imported.
                reasons[target] = _sentence(error)
                missing += [target] if getattr(error, "code", "") == "target.missing" else []
            else:
                if found.source is None and found.artifact is None:
                    reasons[target] = found.reason
                else:
                    records[target] = files.record(found).to_dict()
    except TurboHydraError as error:
        problem = str(error)
    answer = {"records": records, "reasons": reasons, "missing": missing, "problem": problem}
    Path(request["answer"]).write_text(json.dumps(answer), encoding="utf-8")


def _put_in_force(imports: ImportGroups, root: Path) -> None:
    registry = Registry()
    for catalog in imports.catalogs:
        registry.load(catalog)
    for id in imports.ids:
        group = registry.groups[id]
        options = make_options(group, imports.options.get(id, {}))
        for member in group.members:
            if member.kind == "replace_import" and member.target in sys.modules:
                raise OptimizationConfigError(
                    f"group '{id}' serves '{member.target}', which turbo-opt itself has imported; add --static"
                )
            try:
                PreparedImport(group, member, options).install(root)
            except Exception as error:
                raise OptimizationConfigError(
                    f"group '{id}' cannot take effect on the import of '{member.target}': "
                    f"{type(error).__name__}: {error}"
                ) from error


def _read(target: str, reader: LiveReader) -> LiveEvidence:
    site = resolve(target, scope="global")
    home = site.owner.__name__ if isinstance(site.owner, types.ModuleType) else getattr(site.owner, "__module__", "")
    return reader.read(site.raw, site.name, str(home))


def _sentence(error: Exception) -> str:
    text = str(error) if isinstance(error, ResolutionError) else f"{type(error).__name__}: {error}"
    return (text.splitlines() or [type(error).__name__])[0]


class _Files:
    """Tells which distribution a definition's file belongs to, and what the file is called in evidence."""

    def __init__(self, root: Path, roots: Sequence[Path]) -> None:
        self._root = root.resolve()
        self._installed = Installed()
        self._trees = (Repository(root, tuple(roots)), self._installed)

    def record(self, found: LiveEvidence) -> EvidenceRecord:
        """The record of what was found."""
        if found.artifact is not None:
            owner = self._installed.distribution(found.home.partition(".")[0])
            return EvidenceRecord(*owner, None, None, found.chain, found.home.replace(".", "/"), found.artifact)
        name, dist, version = self._named(found.place.file if found.place else "")
        return EvidenceRecord(dist, version, found.source, found.ast, found.chain, name)

    def _named(self, place: str) -> tuple[str, str | None, str | None]:
        for rules in finder.rules.values():
            for rule in rules:
                # A text that a group made is in no file: it stands for the module that it replaces.
                if place == made_file(rule.label, rule.name):
                    original = next((found for tree in self._trees if (found := tree.find(rule.name))), None)
                    return (place, original.dist, original.version) if original else (place, None, None)
        file = Path(place).resolve()
        relative = file.relative_to(self._root) if file.is_relative_to(self._root) else None
        # A virtual environment may lie inside the repository.
        if relative is not None and not {"site-packages", "dist-packages"}.intersection(relative.parts):
            return relative.as_posix(), None, None
        for entry in sorted((Path(item).resolve() for item in sys.path if item), key=lambda item: -len(item.parts)):
            if file.is_relative_to(entry):
                name = file.relative_to(entry).as_posix()
                return (name, *self._installed.distribution(name.partition("/")[0].removesuffix(".py")))
        return file.name, None, None


if __name__ == "__main__":
    main()
