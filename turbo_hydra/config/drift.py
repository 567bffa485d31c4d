# SPDX-License-Identifier: Apache-2.0
"""At which commit a target changed: a walk over a range of commits, read from git's objects."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from turbo_hydra.config.checking import FITS, Found, Status, TargetResult, compare
from turbo_hydra.config.composition import OBJECT_KINDS
from turbo_hydra.config.git import git
from turbo_hydra.config.model_files import named
from turbo_hydra.config.names import check_names, load_catalogs
from turbo_hydra.config.schema import OptimizationConfig
from turbo_hydra.config.static.commits import Commit, Objects
from turbo_hydra.config.static.reader import Seen, StaticReader
from turbo_hydra.config.static.things import Module
from turbo_hydra.config.static.trees import Installed, SourceFile
from turbo_hydra.engine.errors import OptimizationConfigError


@dataclass(frozen=True)
class Change:
    """A target that is another than at the commit before.

    Parameters
    ----------
    commit, subject : str
        The commit and the first line of its message.
    target : str
        The target.
    groups : tuple of str
        The groups that change it.
    status : str
        How it compares with the evidence there.
    diff : str
        What changed in its definition: a unified diff.
    """

    commit: str
    subject: str
    target: str
    groups: tuple[str, ...]
    status: Status
    diff: str


@dataclass
class Drift:
    """The outcome of a walk.

    Parameters
    ----------
    commits : int
        Number of commits after the first.
    changes : list of Change
        In the order of the commits.
    targets : list of TargetResult
        How the targets compare with the evidence at the end of the range.
    """

    commits: int = 0
    changes: list[Change] = field(default_factory=list)
    targets: list[TargetResult] = field(default_factory=list)

    @property
    def matches(self) -> bool:
        """Whether every target of a group that is on fits at the end, as far as was seen."""
        return all(item.status in FITS or item.status == "unseen" or not item.on for item in self.targets)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data."""
        return {"matches": self.matches, **dataclasses.asdict(self)}


def walk(
    config: OptimizationConfig,
    repo: Path,
    commits: str,
    entry: str | None = None,
    pythonpath: Sequence[str] = (),
) -> Drift:
    """Compare the targets of a config from commit to commit.

    Parameters
    ----------
    config : OptimizationConfig
        A generated config.
    repo : Path
        The model's repository; it needs no working tree.
    commits : str
        `A..B`: from A, which is what the first is compared with, to B.
    entry, pythonpath : str and sequence of str, optional
        Script and import path, where the model's config does not say them.

    Raises
    ------
    OptimizationConfigError
        If the range is none, or a name in the config is unknown.
    """
    first, dots, last = commits.partition("..")
    if not dots or not first or not last or last.startswith("."):
        raise OptimizationConfigError(f"--range takes two commits as A..B, found '{commits}'")
    registry = load_catalogs(config)
    check_names(config, registry)
    groups_of: dict[str, list[str]] = {}
    for id in config.groups:
        for member in registry.groups[id].members:
            if member.kind in OBJECT_KINDS:
                groups_of.setdefault(member.target, []).append(id)
    evidence = config.selection().evidence
    script, roots = named(config.model, entry, pythonpath)
    drift = Drift()
    parsed: dict[SourceFile, Module] = {}
    installed = Installed()
    before: dict[str, Seen] = {}
    with Objects(repo) as objects:
        for commit, subject in _commits(repo, first, last):
            reader = StaticReader([Commit(objects, commit, roots, script), installed], parsed)
            now = {target: reader.read(target) for target in groups_of}
            for target in groups_of if before else ():
                if _differs(before[target], now[target]):
                    status = compare("", target, True, evidence.get(target, ()), found(now[target])).status
                    diff = _diff(before[target], now[target])
                    drift.changes.append(Change(commit, subject, target, tuple(groups_of[target]), status, diff))
            drift.commits += bool(before)
            before = now
    for target, ids in groups_of.items():
        for id in ids:
            drift.targets.append(
                compare(id, target, config.groups[id], evidence.get(target, ()), found(before[target]))
            )
    return drift


def found(seen: Seen) -> Found:
    """What a static reading found, for `compare`."""
    return Found(seen.record, seen.reason, seen.line, seen.missing)


def _commits(repo: Path, first: str, last: str) -> Iterator[tuple[str, str]]:
    base = git(repo, "rev-parse", "--verify", f"{first}^{{commit}}").strip()
    yield base, ""
    listed = git(repo, "log", "--reverse", "--topo-order", "--format=%H%x09%s", f"{base}..{last}")
    for line in listed.splitlines():
        commit, _, subject = line.partition("\t")
        yield commit, subject


def _differs(old: Seen, new: Seen) -> bool:
    if old.record is None or new.record is None:
        return (old.record is None) != (new.record is None) or old.missing != new.missing
    return (old.record.ast, old.record.chain) != (new.record.ast, new.record.chain)


def _diff(old: Seen, new: Seen) -> str:
    names = (old.record.file if old.record else "-", new.record.file if new.record else "-")
    lines = difflib.unified_diff(old.text.splitlines(), new.text.splitlines(), *names, lineterm="")
    return "\n".join(lines)
