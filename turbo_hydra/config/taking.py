# SPDX-License-Identifier: Apache-2.0
"""Taking the evidence of targets: from files or by importing them, and from wheels for further versions."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from turbo_hydra.config.evidence_file import Evidence, version_order
from turbo_hydra.config.live import Live
from turbo_hydra.config.reading import SCRIPT, Surroundings, importable
from turbo_hydra.config.static import StaticReader, Wheel
from turbo_hydra.engine.errors import OptimizationConfigError
from turbo_hydra.engine.evidence import EvidenceRecord

Records = dict[str, tuple[EvidenceRecord, ...]]


@dataclass
class Taken:
    """Evidence, and what could not be seen.

    Parameters
    ----------
    records : dict
        Target to its records; a target without any is left out.
    unseen : dict
        Target to the reason why it has none.
    layers : list of str
        Targets whose layers are not in the text.
    absent : list of str
        Targets that a wheel does not have, with the wheel.
    wheels : dict
        Distribution and version to the wheel that its records were read from.
    """

    records: Records = field(default_factory=dict)
    unseen: dict[str, str] = field(default_factory=dict)
    layers: list[str] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)
    wheels: dict[tuple[str, str], Path] = field(default_factory=dict)


def take(
    targets: Sequence[str], surroundings: Surroundings, reader: StaticReader, static: bool, wheels: Sequence[Path] = ()
) -> Taken:
    """The evidence of each target.

    Raises
    ------
    OptimizationConfigError
        If a target does not exist, or importing ends the process.
    """
    taken = Taken()
    live = Live() if static else surroundings.live(importable(targets))
    for target in targets:
        record = live.records.get(target)
        reason = live.reasons.get(target, "")
        missing = target in live.missing
        if record is None and (static or target.startswith(f"{SCRIPT}.")):
            seen = reader.read(target)
            record, reason, missing = seen.record, seen.reason, seen.missing
        if missing:
            start = "target" if reason.startswith(f"'{target}'") else f"target '{target}' does not exist:"
            raise OptimizationConfigError(f"{start} {reason}")
        if record is None:
            taken.unseen[target] = reason
        elif record.chain is None:
            taken.layers.append(target)
        taken.records[target] = () if record is None else (record,)
    for path in wheels:
        _add_wheel(Wheel(path), taken, surroundings)
    taken.records = {target: records for target, records in taken.records.items() if records}
    for target in taken.records:
        taken.unseen.pop(target, None)
    return taken


def _add_wheel(wheel: Wheel, taken: Taken, surroundings: Surroundings) -> None:
    reader = surroundings.reader(wheel)
    for target, records in taken.records.items():
        if any((record.dist, record.version) == (wheel.dist, wheel.version) for record in records):
            continue
        seen = reader.read(target)
        if seen.record is not None and seen.record.dist == wheel.dist:
            taken.records[target] = (*records, seen.record)
            taken.wheels[wheel.dist, wheel.version] = wheel.path
        elif any(record.dist == wheel.dist for record in records):
            taken.absent.append(f"{wheel.dist} {wheel.version}: {target} ({seen.reason})")


def with_known_versions(targets: Records, before: Evidence) -> Records:
    """The records, and those of other versions of their distributions that were taken before."""
    found = {}
    for target, records in targets.items():
        read = {(record.dist, record.version) for record in records}
        dists = {record.dist for record in records if record.dist is not None}
        kept = (item for item in before.targets.get(target, ()) if item.dist in dists)
        found[target] = (*records, *(item for item in kept if (item.dist, item.version) not in read))
    return found


def distributions(targets: Records, wheels: dict[tuple[str, str], Path], before: Evidence) -> list[dict[str, Any]]:
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
