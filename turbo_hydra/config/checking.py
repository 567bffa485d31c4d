# SPDX-License-Identifier: Apache-2.0
"""Whether a generated config still matches a model's repository and the installed packages."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from turbo_hydra.config.composition import OBJECT_KINDS, closure, conflicts
from turbo_hydra.config.generating import SCRIPT, object_targets
from turbo_hydra.config.git import changes, head
from turbo_hydra.config.live import live_records
from turbo_hydra.config.model_files import ModelFiles
from turbo_hydra.config.names import check_names, load_catalogs
from turbo_hydra.config.schema import OptimizationConfig
from turbo_hydra.config.static import Installed, Repository, StaticReader
from turbo_hydra.engine.errors import OptimizationConfigError
from turbo_hydra.engine.evidence import EvidenceRecord
from turbo_hydra.engine.objects import replacement_hash

Status = Literal["match", "layout", "changed", "layers", "version", "missing", "absent", "unseen"]
MEANING: dict[Status, str] = {
    "match": "source and syntax tree are those that were recorded",
    "layout": "the text differs, the syntax tree is the same",
    "changed": "the definition is another",
    "layers": "the definition is the same, but what is wrapped around it is not",
    "version": "no evidence was recorded for this version",
    "missing": "no evidence was recorded",
    "absent": "the target does not exist",
    "unseen": "the files do not tell; import it to know (without --static)",
}
FITS = frozenset({"match", "layout"})


@dataclass(frozen=True)
class TargetResult:
    """The outcome for one target of one group.

    Parameters
    ----------
    group, target : str
        What was checked.
    on : bool
        Whether the config has the group on; only those decide.
    status : str
        A key of `MEANING`.
    place : str
        File of what was found, with its line where it is known.
    expected, found : str
        What was recorded, and what is there.
    detail : str
        Why, where the status does not say it all.
    """

    group: str
    target: str
    on: bool
    status: Status
    place: str = ""
    expected: str = ""
    found: str = ""
    detail: str = ""


@dataclass
class CheckResult:
    """The outcome for a config.

    Parameters
    ----------
    targets : list of TargetResult
        In the order in which groups are applied.
    problems : list of str
        What else does not match.
    notes : list of str
        What is worth knowing and no mismatch.
    """

    targets: list[TargetResult] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def matches(self) -> bool:
        """Whether every group that is on can be applied, as far as was seen."""
        return not self.problems and all(
            item.status in FITS or item.status == "unseen" or not item.on for item in self.targets
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data."""
        return {"matches": self.matches, **dataclasses.asdict(self)}


def check(
    config: OptimizationConfig,
    repo: Path,
    static: bool = False,
    untracked: Sequence[str] = (),
    entry: str | None = None,
    pythonpath: Sequence[str] = (),
) -> CheckResult:
    """Compare a config's evidence with what is there.

    Parameters
    ----------
    config : OptimizationConfig
        A generated config.
    repo : Path
        The model's repository.
    static : bool
        Whether files are read instead of importing the targets.
    untracked : sequence of str
        Globs of paths that may lie in the repository without being known to git.
    entry, pythonpath : str and sequence of str, optional
        Script and import path, where the model's config does not say them.

    Raises
    ------
    OptimizationConfigError
        If a name in the config is unknown, a catalog cannot be imported, or the targets cannot be imported at all.
    """
    if not repo.is_dir():
        raise OptimizationConfigError(f"--repo: there is no folder {repo}")
    registry = load_catalogs(config)
    check_names(config, registry)
    result = CheckResult()
    _check_repository(config, repo, tuple(untracked), result)
    groups = dict(config.groups)
    try:
        ordered = closure(groups, registry)
    except OptimizationConfigError as problem:
        result.problems.append(str(problem))
        ordered = groups
    else:
        result.problems += [f"group '{id}' is needed and not in the config" for id in ordered if id not in groups]
        if list(ordered) != [id for id in groups if id in ordered] and set(ordered) == set(groups):
            result.notes.append(f"groups are applied in another order than the file's: {', '.join(ordered)}")
    files = ModelFiles.of(config.model, repo, entry, pythonpath)
    reader = StaticReader([Repository(repo, files.roots, files.entry), Installed()])
    chosen = [registry.groups[id] for id in ordered]
    result.problems += conflicts((group for group in chosen if ordered[group.id]), reader)
    selection = config.selection()
    found = _found(object_targets(chosen), repo, files, reader, static)
    for group in chosen:
        for member in group.members:
            if member.kind in OBJECT_KINDS:
                records = selection.evidence.get(member.target, ())
                item = compare(group.id, member.target, ordered[group.id], records, found[member.target])
                result.targets.append(item)
        recorded = selection.replacements.get(group.id)
        if recorded is not None and recorded != replacement_hash(group):
            result.notes.append(f"replacement.changed: the code of group '{group.id}' is not what was validated")
    return result


def _check_repository(config: OptimizationConfig, repo: Path, untracked: tuple[str, ...], result: CheckResult) -> None:
    try:
        commit = head(repo)
        changed = changes(repo, untracked)
    except OptimizationConfigError as problem:
        result.notes.append(f"the repository's state is unknown: {problem}")
        return
    if changed:
        sentence = f"{len(changed)} path(s) with changes that are not committed: {', '.join(changed[:3])}"
        (result.notes if config.compatibility.allow_dirty else result.problems).append(sentence)
    commits = config.compatibility.commits
    if commits and not any(commit.startswith(item) for item in commits):
        result.notes.append(
            f"project.commit: at {commit[:12]}, evidence was taken at {', '.join(c[:12] for c in commits)}"
        )


@dataclass(frozen=True)
class Found:
    """What is there: its evidence, or the reason why there is none."""

    record: EvidenceRecord | None
    reason: str = ""
    line: int = 0
    absent: bool = False

    @property
    def place(self) -> str:
        """File and line, as far as they are known."""
        if self.record is None:
            return ""
        return f"{self.record.file}:{self.line}" if self.line else self.record.file


def _found(
    targets: Sequence[str], repo: Path, files: ModelFiles, reader: StaticReader, static: bool
) -> Mapping[str, Found]:
    seen = {target: reader.read(target) for target in targets}
    found = {target: Found(item.record, item.reason, item.line, item.missing) for target, item in seen.items()}
    if static:
        return found
    importable = [target for target in targets if not target.startswith(f"{SCRIPT}.")]
    records, reasons = live_records(importable, repo, files.roots)
    for target in importable:
        if target in records:
            found[target] = Found(records[target], line=seen[target].line)
        else:
            found[target] = Found(None, reasons.get(target, ""), absent=True)
    return found


def compare(group: str, target: str, on: bool, records: Sequence[EvidenceRecord], found: Found) -> TargetResult:
    """Compare what was recorded for a target with what is there."""

    def result(status: Status, expected: str = "", actual: str = "", detail: str = "") -> TargetResult:
        return TargetResult(group, target, on, status, found.place, expected, actual, detail)

    if not records:
        return result("missing", detail="take it with turbo-opt generate")
    if found.record is None:
        return result("absent" if found.absent else "unseen", detail=found.reason)
    here = found.record
    same = [item for item in records if item.dist is None or (item.dist, item.version) == (here.dist, here.version)]
    if not same:
        known = ", ".join(sorted({f"{item.dist} {item.version}" for item in records}))
        return result("version", known, f"{here.dist} {here.version}", "turbo-opt generate takes its evidence")
    if here.artifact is not None:
        recorded = [item for item in same if item.artifact is not None]
        if any(item.artifact == here.artifact for item in recorded):
            return result("match")
        return result("changed", "; ".join(f"{item.artifact}" for item in recorded), here.artifact)
    trees = [item for item in same if item.ast == here.ast]
    if not trees:
        return result("changed", "; ".join(f"{item.ast}" for item in same), f"{here.ast}")
    if not any(item.chain is None or here.chain is None or item.chain == here.chain for item in trees):
        return result("layers", _layers(trees[0]), _layers(here))
    if any(item.source == here.source for item in trees):
        return result("match")
    return result("layout", f"{trees[0].source}", f"{here.source}")


def _layers(record: EvidenceRecord) -> str:
    return " < ".join(record.chain or ()) or "no layer"
