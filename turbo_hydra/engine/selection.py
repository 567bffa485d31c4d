# SPDX-License-Identifier: Apache-2.0
"""What the engine is asked to do: a resolved optimization config, without its file's shape."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

from turbo_hydra.engine.evidence import EvidenceRecord


@dataclass(frozen=True)
class Selection:
    """Groups, options, evidence and settings of one attempt.

    Parameters
    ----------
    groups : Mapping[str, bool]
        Group id to whether it is on.
    options : Mapping[str, Mapping[str, Any]]
        Group id to the options that differ from the defaults.
    evidence : Mapping[str, tuple[EvidenceRecord, ...]]
        Target to its validated states.
    replacements : Mapping[str, str]
        Group id to the `ast-v1` hash of its replacements when it was validated.
    commits : tuple[str, ...]
        Commits of the model's repository that the evidence was taken at.
    dependencies : Mapping[str, str]
        Distribution name to a version specifier.
    backends : tuple[str, ...]
        Kinds of device that were validated (`backend.BACKENDS`); none says nothing about them.
    accelerator : str
        `runtime.accelerator`, `auto` where nobody has said.
    allow_dirty : bool
        Whether uncommitted changes in the model's repository are a warning instead of a failure.
    enabled : bool
        False leaves out the groups whose purpose is optimization.
    only, disable, force : tuple[str, ...]
        Globs of group ids; `only` None means all.
    strict : bool
        Whether an enabled group that is not applied ends the run.
    shadow_calls : int
        For how many calls of each member the original runs as well.
    count_calls : {"auto", "off"}
        Whether calls of each member are counted.
    repository : Path or None
        The model's repository, for its commit and state.
    """

    groups: Mapping[str, bool] = field(default_factory=dict)
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    evidence: Mapping[str, tuple[EvidenceRecord, ...]] = field(default_factory=dict)
    replacements: Mapping[str, str] = field(default_factory=dict)
    commits: tuple[str, ...] = ()
    dependencies: Mapping[str, str] = field(default_factory=dict)
    backends: tuple[str, ...] = ()
    accelerator: str = "auto"
    allow_dirty: bool = False
    enabled: bool = True
    only: tuple[str, ...] | None = None
    disable: tuple[str, ...] = ()
    force: tuple[str, ...] = ()
    strict: bool = False
    shadow_calls: int = 0
    count_calls: Literal["auto", "off"] = "auto"
    repository: Path | None = None

    @property
    def counts(self) -> bool:
        """Whether calls are counted; shadow mode counts what it compares."""
        return self.count_calls != "off" or self.shadow_calls > 0

    def is_forced(self, id: str) -> bool:
        """Whether `force` names the group."""
        return matches(id, self.force)

    def is_disabled(self, id: str) -> bool:
        """Whether `disable` names the group, or `only` does not."""
        return matches(id, self.disable) or (self.only is not None and not matches(id, self.only))


def matches(id: str, globs: tuple[str, ...]) -> bool:
    """Whether one of `globs` matches the group id."""
    return any(fnmatchcase(id, pattern) for pattern in globs)
