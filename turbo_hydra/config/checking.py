# SPDX-License-Identifier: Apache-2.0
"""Whether a generated config still matches a model's repository and the installed packages."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from turbo_hydra.config.composition import OBJECT_KINDS, closure, conflicts, object_targets
from turbo_hydra.config.git import changes, head
from turbo_hydra.config.model_files import ModelFiles
from turbo_hydra.config.names import check_names, load_catalogs
from turbo_hydra.config.places import ModelPlace
from turbo_hydra.config.reading import Surroundings, importable
from turbo_hydra.config.schema import OptimizationConfig
from turbo_hydra.config.static import Seen, StaticReader
from turbo_hydra.engine.errors import OptimizationConfigError
from turbo_hydra.engine.evidence import EvidenceRecord
from turbo_hydra.engine.objects import replacement_hash

Status = Literal["match", "layout", "changed", "layers", "version", "missing", "absent", "unreadable", "unseen"]
MEANING: dict[Status, str] = {
    "match": "source and syntax tree are those that were recorded",
    "layout": "the text differs, the syntax tree is the same",
    "changed": "the definition is another",
    "layers": "the definition is the same, but what is wrapped around it is not",
    "version": "no evidence was recorded for this version",
    "missing": "no evidence was recorded",
    "absent": "the target does not exist",
    "unreadable": "importing it fails, or what is there has no evidence",
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
    repo: str | Path,
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
    repo : str or Path
        The model's repository, or `pkg://package/folder` for code that ships inside a package.
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
    place = ModelPlace.of(repo)
    registry = load_catalogs(config)
    check_names(config, registry)
    result = CheckResult()
    if place.shipped is None:
        _check_repository(config, place.folder, tuple(untracked), result)
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
    files = ModelFiles.of(config.model, place.folder, entry, pythonpath)
    chosen = [registry.groups[id] for id in ordered]
    on = [group for group in chosen if ordered[group.id]]
    surroundings = Surroundings(place.folder, files, config.catalogs, on, config.options)
    reader = surroundings.reader()
    result.problems += conflicts(on, reader, one_recipe=False)
    selection = config.selection()
    found = _found(object_targets(chosen), surroundings, reader, static)
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
    """What is there: its evidence, or the reason why there is none and which status that is."""

    record: EvidenceRecord | None
    reason: str = ""
    line: int = 0
    status: Status = "unseen"

    @classmethod
    def seen(cls, seen: Seen) -> Found:
        """What a static reading found."""
        return cls(seen.record, seen.reason, seen.line, "absent" if seen.missing else "unseen")

    @property
    def place(self) -> str:
        """File and line, as far as they are known."""
        if self.record is None:
            return ""
        return f"{self.record.file}:{self.line}" if self.line else self.record.file


def _found(
    targets: Sequence[str], surroundings: Surroundings, reader: StaticReader, static: bool
) -> Mapping[str, Found]:
    found = {target: Found.seen(reader.read(target)) for target in targets}
    if static:
        return found
    live = surroundings.live(importable(targets))
    for target in importable(targets):
        if target in live.records:
            found[target] = Found(live.records[target], line=found[target].line)
        else:
            status: Status = "absent" if target in live.missing else "unreadable"
            found[target] = Found(None, live.reasons.get(target, ""), status=status)
    return found


def compare(group: str, target: str, on: bool, records: Sequence[EvidenceRecord], found: Found) -> TargetResult:
    """Compare what was recorded for a target with what is there."""

    def result(status: Status, expected: str = "", actual: str = "", detail: str = "") -> TargetResult:
        return TargetResult(group, target, on, status, found.place, expected, actual, detail)

    if not records:
        return result("missing", detail="take it with turbo-opt generate")
    if found.record is None:
        return result(found.status, detail=found.reason)
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
    if not any(_same_layers(target, item, here) for item in trees):
        return result("layers", _layers(trees[0]), _layers(here))
    if any(item.source == here.source for item in trees):
        return result("match")
    return result("layout", f"{trees[0].source}", f"{here.source}")


def _same_layers(target: str, recorded: EvidenceRecord, here: EvidenceRecord) -> bool:
    """Whether the layers agree, as far as both were seen; as at run time, foreign ones never do."""
    if here.chain is None:
        return True
    if recorded.chain is None:
        top = target.partition(".")[0]
        return all(layer.partition(":")[0].partition(".")[0] == top for layer in here.chain)
    return recorded.chain == here.chain


def _layers(record: EvidenceRecord) -> str:
    return " < ".join(record.chain or ()) or "no layer"
