# SPDX-License-Identifier: Apache-2.0
"""Checks: what was expected, what was found, and whether a user may let it pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from turbo_hydra.engine.declarations import Place
from turbo_hydra.engine.evidence import EvidenceRecord, Layer, LiveEvidence

Status = Literal["pass", "warning", "fail", "unknown", "not_applicable"]


@dataclass(frozen=True)
class Check:
    """The outcome of one check.

    Parameters
    ----------
    code : str
        Set where the check is made, never read out of a message.
    status : {"pass", "warning", "fail", "unknown", "not_applicable"}
        The outcome; only `fail` blocks.
    group, target : str or None
        What was checked; both None at the level of the config.
    expected, actual : str
        In words or hashes.
    place : Place or None
        File and line of what was found.
    forceable : bool
        Whether `force` lifts a failure.
    message : str
        One sentence for a person.
    """

    code: str
    status: Status
    group: str | None = None
    target: str | None = None
    expected: str = ""
    actual: str = ""
    place: Place | None = None
    forceable: bool = False
    message: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data."""
        return {
            "code": self.code,
            "status": self.status,
            "group": self.group,
            "target": self.target,
            "expected": self.expected,
            "actual": self.actual,
            "place": str(self.place) if self.place else None,
            "forceable": self.forceable,
            "message": self.message,
        }


def check_evidence(
    group: str,
    target: str,
    records: tuple[EvidenceRecord, ...],
    live: LiveEvidence,
    installed: Callable[[str], str | None],
) -> Check:
    """Compare what was recorded for `target` with what is there.

    Parameters
    ----------
    group, target : str
        For the message.
    records : tuple[EvidenceRecord, ...]
        The validated states, any of which may match.
    live : LiveEvidence
        What is there.
    installed : callable
        The installed public version of a distribution, None where it is not installed.
    """

    def failed(code: str, expected: str, actual: str, message: str, place: Place | None = live.place) -> Check:
        return Check(code, "fail", group, target, expected, actual, place, forceable=True, message=message)

    if not records:
        return failed(
            "evidence.missing",
            "evidence",
            "none recorded",
            f"no evidence was recorded for '{target}'; take it with turbo-opt generate",
        )
    candidates = tuple(item for item in records if item.dist is None or installed(item.dist) == item.version)
    if not candidates:
        return _unknown_version(failed, target, records, installed)
    if live.artifact is not None and any(item.artifact == live.artifact for item in candidates):
        return Check("evidence", "pass", group, target, live.artifact, live.artifact, live.place, message="artifact-v1")
    if live.artifact is not None:
        return failed(
            "evidence.changed",
            "; ".join(str(item.artifact) for item in candidates),
            live.artifact,
            f"the binaries behind '{target}' are not those that the group was validated against",
        )
    if live.source is None:
        return failed(
            "evidence.unreadable", _hashes(candidates), live.reason, f"'{target}' has no evidence: {live.reason}"
        )
    matching = [item for item in candidates if live.source == item.source or live.ast == item.ast]
    if not matching:
        return failed(
            "evidence.changed",
            _hashes(candidates),
            f"{live.source} {live.ast}",
            f"'{target}' at {live.place} is not the code that the group was validated against",
        )
    foreign = [layer for item in matching for layer in _foreign(target, item, live)]
    if any(_same_chain(target, item, live) for item in matching):
        how = "source-v1" if any(live.source == item.source for item in matching) else "ast-v1"
        return Check("evidence", "pass", group, target, _hashes(tuple(matching)), live.source, live.place, message=how)
    expected = " < ".join(matching[0].chain or ()) or "no layer"
    if foreign:
        return failed(
            "evidence.foreign_wrapper",
            expected,
            " < ".join(live.chain),
            f"'{target}' is wrapped by {foreign[0]}, which was not there when the group was validated",
            foreign[0].place or live.place,
        )
    return failed(
        "evidence.changed",
        expected,
        " < ".join(live.chain) or "no layer",
        f"'{target}' has lost layers that it had when the group was validated (another order, or a decorator gone)",
    )


def _unknown_version(
    failed: Callable[..., Check],
    target: str,
    records: tuple[EvidenceRecord, ...],
    installed: Callable[[str], str | None],
) -> Check:
    dist = records[0].dist or ""
    version = installed(dist)
    versions = ", ".join(sorted({item.version or "" for item in records if item.dist == dist}))
    found = f"{dist} {version}" if version else f"{dist} is not installed"
    return failed(
        "evidence.version",
        f"{dist} {versions}",
        found,
        f"'{target}' has evidence for {dist} {versions}, found {found}; "
        "take this version's with turbo-opt generate (--wheel reads a wheel)",
    )


def _hashes(records: tuple[EvidenceRecord, ...]) -> str:
    return "; ".join(f"{item.source} {item.ast}" for item in records)


def _foreign(target: str, record: EvidenceRecord, live: LiveEvidence) -> Iterable[Layer]:
    if record.chain is None:
        # Static evidence that could not read the decorators: what the target's own package put on is expected.
        top = target.split(".")[0]
        return [layer for layer in live.layers if layer.name.split(":")[0].split(".")[0] != top]
    return [layer for layer in live.layers if layer.name not in record.chain]


def _same_chain(target: str, record: EvidenceRecord, live: LiveEvidence) -> bool:
    if record.chain is None:
        return not _foreign(target, record, live)
    return record.chain == live.chain


@dataclass(frozen=True)
class CompatibilityResult:
    """What a group's `compatibility_check` returns.

    Parameters
    ----------
    compatible : bool
        Whether the group may be applied.
    reason : str
        One sentence, when it may not.
    """

    compatible: bool
    reason: str = ""


@dataclass(frozen=True)
class CheckContext:
    """What a `compatibility_check` may ask.

    Parameters
    ----------
    group : str
        The group that is checked.
    options : object or None
        An instance of the group's options.
    enabled : frozenset[str]
        Ids of the groups that are on.
    environment : dict[str, Any]
        Host, interpreter and versions, as in the report.
    repository : Path or None
        The model's repository.
    """

    group: str
    options: Any
    enabled: frozenset[str]
    environment: dict[str, Any]
    repository: Path | None = None
