# SPDX-License-Identifier: Apache-2.0
"""At which commit a target changed: a walk over a range of commits, read from git's objects."""

from __future__ import annotations

import dataclasses
import difflib
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from turbo_hydra.config.checking import FITS, Found, Status, TargetResult, compare
from turbo_hydra.config.composition import OBJECT_KINDS, closure
from turbo_hydra.config.git import git
from turbo_hydra.config.model_files import named
from turbo_hydra.config.names import check_names, load_catalogs
from turbo_hydra.config.schema import OptimizationConfig
from turbo_hydra.config.static.commits import Commit, Objects
from turbo_hydra.config.static.reader import Seen, StaticReader
from turbo_hydra.config.static.served import Serving, servings
from turbo_hydra.config.static.things import Module
from turbo_hydra.config.static.trees import Installed, SourceFile
from turbo_hydra.engine.errors import OptimizationConfigError


@dataclass(frozen=True)
class Change:
    """A target that is another than at each of the commit's parents.

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
    on = [registry.groups[id] for id in closure(config.groups, registry) if config.groups.get(id)]
    drift = Drift()
    start, end = (git(repo, "rev-parse", "--verify", f"{item}^{{commit}}").strip() for item in (first, last))
    with Objects(repo) as objects, tempfile.TemporaryDirectory() as folder:
        readings = _Readings(objects, roots, script, servings(on, config.options), Path(folder), list(groups_of))
        for commit, parents, subject in _commits(repo, start, end):
            drift.commits += 1
            now = readings.at(commit)
            for target, ids in groups_of.items():
                # A merge changes what it has from none of its parents.
                before = [readings.at(parent)[target] for parent in parents]
                if before and all(_differs(item, now[target]) for item in before):
                    status = compare("", target, True, evidence.get(target, ()), Found.seen(now[target])).status
                    diff = _diff(before[0], now[target])
                    drift.changes.append(Change(commit, subject, target, tuple(ids), status, diff))
        for target, ids in groups_of.items():
            seen = Found.seen(readings.at(end)[target])
            drift.targets += [compare(id, target, config.groups[id], evidence.get(target, ()), seen) for id in ids]
    return drift


class _Readings:
    """What the targets look like at commits, each read once; a file that commits share is parsed once."""

    def __init__(
        self,
        objects: Objects,
        roots: Sequence[str],
        script: str | None,
        serving: Sequence[Serving],
        folder: Path,
        targets: Sequence[str],
    ) -> None:
        self._objects = objects
        self._roots = roots
        self._script = script
        self._serving = serving
        self._folder = folder
        self._targets = targets
        self._installed = Installed()
        self._parsed: dict[SourceFile, Module] = {}
        self._found: dict[str, dict[str, Seen]] = {}

    def at(self, commit: str) -> dict[str, Seen]:
        """Each target at a commit."""
        if commit not in self._found:
            tree = Commit(self._objects, commit, self._roots, self._script)
            if self._serving:
                # What an import group serves may be made from files of the repository.
                tree.write_to(self._folder)
            reader = StaticReader([tree, self._installed], self._parsed, self._serving, self._folder)
            self._found[commit] = {target: reader.read(target) for target in self._targets}
        return self._found[commit]


def _commits(repo: Path, start: str, end: str) -> Iterator[tuple[str, list[str], str]]:
    """Commit, parents and subject of all that the end has and the start has not, parents first."""
    listed = git(repo, "log", "--reverse", "--topo-order", "--format=%H%x09%P%x09%s", f"{start}..{end}")
    for line in listed.splitlines():
        commit, parents, subject = line.split("\t", 2)
        yield commit, parents.split(), subject


def _differs(old: Seen, new: Seen) -> bool:
    if old.record is None or new.record is None:
        return (old.record is None) != (new.record is None) or old.missing != new.missing
    return (old.record.ast, old.record.chain) != (new.record.ast, new.record.chain)


def _diff(old: Seen, new: Seen) -> str:
    names = (old.record.file if old.record else "-", new.record.file if new.record else "-")
    lines = difflib.unified_diff(old.text.splitlines(), new.text.splitlines(), *names, lineterm="")
    return "\n".join(lines)
