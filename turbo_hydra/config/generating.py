# SPDX-License-Identifier: Apache-2.0
"""From a recipe to an optimization config with evidence. The same inputs give the same bytes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from turbo_hydra.config.composition import OBJECT_KINDS, closure, conflicts, reaches
from turbo_hydra.config.evidence_file import Evidence, version_order
from turbo_hydra.config.git import check_commit, origin
from turbo_hydra.config.live import live_records
from turbo_hydra.config.model_files import ModelFiles
from turbo_hydra.config.names import check_names, load_catalogs
from turbo_hydra.config.parts import nested
from turbo_hydra.config.recipe import Recipe
from turbo_hydra.config.schema import KIND, SCHEMA_VERSION, OptimizationConfig
from turbo_hydra.config.static import Installed, Repository, StaticReader, Wheel
from turbo_hydra.config.yaml_reader import read_text
from turbo_hydra.engine.declarations import Group
from turbo_hydra.engine.errors import OptimizationConfigError
from turbo_hydra.engine.evidence import EvidenceRecord
from turbo_hydra.engine.objects import replacement_hash
from turbo_hydra.engine.registry import Registry
from turbo_hydra.engine.report import write_text_atomic

_PACKAGE = Path(__file__).absolute().parent.parent
SCRIPT = "__main__"


@dataclass(frozen=True)
class Request:
    """What to generate.

    Parameters
    ----------
    recipe : Path
        The recipe.
    repo : Path
        The model's repository.
    output : Path
        The config to write; the evidence goes beside it.
    commit : str or None
        What HEAD must be; None only for code that ships inside this package.
    static : bool
        Whether evidence is read from files, without importing the model or torch.
    wheels : sequence of Path
        Further versions of distributions.
    force : bool
        Whether an existing output is replaced.
    keep_versions : bool
        Whether an output that is replaced hands on its records of versions of distributions that are not read now:
        a released version does not change, and not everyone has all its wheels at hand.
    untracked : sequence of str
        Globs of paths that may lie in the repository without being known to git.
    entry, pythonpath : str and sequence of str, optional
        The model's script and import path, below the repository; read from the model's config when not given.
    """

    recipe: Path
    repo: Path
    output: Path
    commit: str | None = None
    static: bool = False
    wheels: Sequence[Path] = ()
    force: bool = False
    keep_versions: bool = True
    untracked: Sequence[str] = ()
    entry: str | None = None
    pythonpath: Sequence[str] = ()


@dataclass
class Generated:
    """What was written, and what could not be seen.

    Parameters
    ----------
    groups : int
        Number of groups.
    records : int
        Number of evidence records.
    unseen : dict
        Target to the reason why it has no evidence.
    absent : list of str
        Targets that a wheel does not have, with the wheel.
    wheels : dict
        Distribution and version to the wheel that its records were read from.
    """

    groups: int = 0
    records: int = 0
    unseen: dict[str, str] = field(default_factory=dict)
    absent: list[str] = field(default_factory=list)
    wheels: dict[tuple[str, str], Path] = field(default_factory=dict)


def generate(request: Request) -> Generated:
    """Check the recipe, take the evidence, and write config and evidence.

    Raises
    ------
    OptimizationConfigError
        If the recipe, the repository or the composition is wrong; nothing is written then.
    """
    evidence_file = request.output.with_name(f"{request.output.stem}.evidence.json")
    for path in (request.output, evidence_file):
        if path.exists() and not request.force:
            raise OptimizationConfigError(f"{path} exists; --force replaces it")
    if not request.repo.is_dir():
        raise OptimizationConfigError(f"--repo: there is no folder {request.repo}")
    recipe = Recipe.from_file(request.recipe)
    registry = load_catalogs(_as_config(recipe, recipe.groups, request.recipe))
    check_names(_as_config(recipe, recipe.groups, request.recipe), registry)
    commit, repository = _provenance(request)
    groups = closure(recipe.groups, registry)
    chosen = [registry.groups[id] for id in groups]
    files = ModelFiles.of(recipe.model, request.repo, request.entry, request.pythonpath)
    reader = StaticReader([Repository(request.repo, files.roots, files.entry), Installed()])
    problems = [*conflicts([group for group in chosen if groups[group.id]], reader), *reaches(chosen, reader)]
    if problems:
        raise OptimizationConfigError("; ".join(problems))
    done = Generated(groups=len(groups))
    targets = _records(request, chosen, files, reader, done)
    before = Evidence.read(evidence_file) if evidence_file.exists() and request.keep_versions else Evidence()
    targets = _with_known_versions(targets, before)
    done.records = sum(map(len, targets.values()))
    evidence = Evidence(
        targets,
        {group.id: digest for group in chosen if (digest := replacement_hash(group)) is not None},
        {
            "repository": repository if recipe.model else None,
            "commit": commit if recipe.model else None,
            "recipe_sha256": hashlib.sha256(request.recipe.read_bytes()).hexdigest(),
            "generator": _version(),
            "distributions": _distributions(targets, done.wheels, before),
        },
    )
    text = _config_text(request, recipe, groups, commit, evidence_file.name)
    write_text_atomic(evidence_file, evidence.to_text())
    write_text_atomic(request.output, text)
    return done


def _as_config(recipe: Recipe, groups: Any, path: Path) -> OptimizationConfig:
    return OptimizationConfig(catalogs=recipe.catalogs, groups=groups, options=recipe.options, path=path)


def _provenance(request: Request) -> tuple[str | None, str | None]:
    """Commit and origin of the model's repository."""
    examples = (_PACKAGE / "examples").resolve()
    folder = request.repo.resolve()
    if folder.is_relative_to(examples):
        if request.commit is not None:
            raise OptimizationConfigError(
                f"{request.repo} ships inside this package, so no commit describes it; drop --commit"
            )
        return None, f"pkg://turbo_hydra/examples/{folder.relative_to(examples).as_posix()}"
    if request.commit is None:
        raise OptimizationConfigError(f"--commit must name the commit that {request.repo} is at")
    return check_commit(request.repo, request.commit, tuple(request.untracked)), origin(request.repo)


def object_targets(groups: Iterable[Group]) -> list[str]:
    """The targets that have evidence, each once: those of replace and wrap; import kinds have none."""
    return list(
        dict.fromkeys(member.target for group in groups for member in group.members if member.kind in OBJECT_KINDS)
    )


def _records(
    request: Request, groups: Sequence[Group], files: ModelFiles, reader: StaticReader, done: Generated
) -> dict[str, tuple[EvidenceRecord, ...]]:
    targets = object_targets(groups)
    live: dict[str, EvidenceRecord] = {}
    reasons: dict[str, str] = {}
    if not request.static:
        # The script itself cannot be imported without running it.
        importable = [target for target in targets if not target.startswith(f"{SCRIPT}.")]
        live, reasons = live_records(importable, request.repo, files.roots)
    found: dict[str, tuple[EvidenceRecord, ...]] = {}
    for target in targets:
        record = live.get(target)
        reason = reasons.get(target, "")
        if record is None and (request.static or target.startswith(f"{SCRIPT}.")):
            seen = reader.read(target)
            record, reason = seen.record, seen.reason
            if seen.missing:
                raise OptimizationConfigError(f"target '{target}' does not exist: {reason}")
        if record is None:
            done.unseen[target] = reason
        found[target] = () if record is None else (record,)
    for path in request.wheels:
        _add_wheel(Wheel(path), found, files, request, done)
    for target, records in found.items():
        if records:
            done.unseen.pop(target, None)
    return {target: records for target, records in found.items() if records}


def _add_wheel(
    wheel: Wheel, found: dict[str, tuple[EvidenceRecord, ...]], files: ModelFiles, request: Request, done: Generated
) -> None:
    reader = StaticReader([Repository(request.repo, files.roots, files.entry), wheel, Installed()])
    for target, records in found.items():
        if any((record.dist, record.version) == (wheel.dist, wheel.version) for record in records):
            continue
        seen = reader.read(target)
        if seen.record is not None and seen.record.dist == wheel.dist:
            found[target] = (*records, seen.record)
            done.wheels[wheel.dist, wheel.version] = wheel.path
        elif any(record.dist == wheel.dist for record in records):
            done.absent.append(f"{wheel.dist} {wheel.version}: {target} ({seen.reason})")


def _with_known_versions(
    targets: dict[str, tuple[EvidenceRecord, ...]], before: Evidence
) -> dict[str, tuple[EvidenceRecord, ...]]:
    found = {}
    for target, records in targets.items():
        read = {(record.dist, record.version) for record in records}
        dists = {record.dist for record in records if record.dist is not None}
        kept = (item for item in before.targets.get(target, ()) if item.dist in dists)
        found[target] = (*records, *(item for item in kept if (item.dist, item.version) not in read))
    return found


def _distributions(
    targets: dict[str, tuple[EvidenceRecord, ...]], wheels: dict[tuple[str, str], Path], before: Evidence
) -> list[dict[str, Any]]:
    """Each distribution and version that has records, with the wheel it was read from where it was one."""
    known = {(item["name"], item["version"]): item for item in before.provenance.get("distributions") or ()}
    pairs = {(str(item.dist), str(item.version)) for records in targets.values() for item in records if item.dist}
    found: list[dict[str, Any]] = []
    for dist, version in sorted(pairs, key=lambda pair: (pair[0], version_order(pair[1]))):
        path = wheels.get((dist, version))
        entry: dict[str, Any] = {"name": dist, "version": version}
        if path is not None:
            entry.update(wheel=path.name, sha256=_sha256(path))
        found.append(entry if path is not None else known.get((dist, version), entry))
    return found


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _config_text(request: Request, recipe: Recipe, groups: dict[str, bool], commit: str | None, evidence: str) -> str:
    commits = list(dict.fromkeys([*recipe.compatibility.commits, *([commit] if commit and recipe.model else [])]))
    data: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "kind": KIND,
        "metadata": {key: value for key, value in vars(recipe.metadata).items() if value},
        "model": {"name": recipe.model},
        "catalogs": list(recipe.catalogs),
        "evidence": evidence,
        "compatibility": {
            "commits": commits,
            "dependencies": dict(recipe.compatibility.dependencies),
            "allow_dirty": recipe.compatibility.allow_dirty,
        },
        "groups": nested(groups),
        "options": nested({id: dict(recipe.options[id]) for id in groups if id in recipe.options}),
    }
    # The licence that the recipe is under is that of what is made from it.
    first = read_text(request.recipe).splitlines()[:2]
    licence = "".join(f"{line}\n" for line in first if line.startswith("# SPDX-License-Identifier:"))
    note = f"# Generated by turbo-opt from the recipe {request.recipe.name}; edit that and generate again.\n"
    return licence + note + yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=120)


def _version() -> str:
    from turbo_hydra import __version__

    return __version__


__all__ = ["Generated", "Registry", "Request", "generate", "object_targets"]
