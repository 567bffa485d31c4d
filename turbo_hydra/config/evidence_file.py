# SPDX-License-Identifier: Apache-2.0
"""The evidence file beside an optimization config: one canonical form, so that equal content is equal bytes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from turbo_hydra.config.fields import Field
from turbo_hydra.config.yaml_reader import Document, read_text
from turbo_hydra.engine.errors import OptimizationConfigError
from turbo_hydra.engine.evidence import UNSEEN, EvidenceRecord

SCHEMA_VERSION = "turbo_hydra/evidence/v1"
KEYS = ("schema_version", "provenance", "targets", "replacements")
RECORD_KEYS = ("dist", "version", "source", "ast", "chain", "file", "artifact")
PROVENANCE_KEYS = ("repository", "commit", "recipe_sha256", "catalogs", "generator", "distributions")

_HASH = {key: re.compile(rf"{key}-v1:[0-9a-f]{{64}}") for key in ("source", "ast", "artifact")}


@dataclass(frozen=True)
class Evidence:
    """What the targets of a config looked like when its groups were validated.

    Parameters
    ----------
    targets : dict
        Target to its validated states, one for each version of its distribution.
    replacements : dict
        Group id to the `ast-v1` hash of its replacements.
    provenance : dict
        Where it was taken: repository, commit, SHA-256 of the recipe and of those that it is made of, `ast-v1` hash of
        each catalog, version of the generator, and the distributions, with the wheels that they were read from.
    """

    targets: Mapping[str, tuple[EvidenceRecord, ...]] = field(default_factory=dict)
    replacements: Mapping[str, str] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Evidence:
        """Read a file.

        Raises
        ------
        OptimizationConfigNotFoundError
            If it is missing or unreadable.
        OptimizationConfigError
            If its content is wrong.
        """
        try:
            data = json.loads(read_text(path), object_pairs_hook=_without_repeats)
        except ValueError as error:
            raise OptimizationConfigError(f"{path}: not valid JSON: {error}") from error
        if not isinstance(data, dict):
            raise OptimizationConfigError(f"{path}: expected an object of evidence, found {type(data).__name__}")
        return cls.from_document(Document(data, str(path)))

    @classmethod
    def from_document(cls, document: Document) -> Evidence:
        """Check the content of a file.

        Raises
        ------
        OptimizationConfigError
            If it is wrong.
        """
        root = Field.root(document)
        root.mapping(KEYS)
        if root["schema_version"].value != SCHEMA_VERSION:
            root["schema_version"].refuse(repr(SCHEMA_VERSION))
        root["provenance"].mapping(PROVENANCE_KEYS)
        targets = {}
        for target, records in root["targets"].mapping().items():
            if not isinstance(records.value, list):
                records.refuse("a list of records")
            targets[target] = tuple(
                _record(Field(document, (*records.path, str(index)), item)) for index, item in enumerate(records.value)
            )
        replacements = {}
        for id, value in root["replacements"].mapping().items():
            if not _HASH["ast"].fullmatch(value.string() or ""):
                value.refuse("an ast-v1 hash")
            replacements[id] = str(value.value)
        return cls(targets, replacements, dict(root["provenance"].value or {}))

    @classmethod
    def union(cls, parts: Iterable[Evidence]) -> Evidence:
        """Evidence of several files: each target with all its records, later files' replacements first."""
        targets: dict[str, tuple[EvidenceRecord, ...]] = {}
        replacements: dict[str, str] = {}
        provenance: Mapping[str, Any] = {}
        for part in parts:
            for target, records in part.targets.items():
                targets[target] = tuple(dict.fromkeys((*targets.get(target, ()), *records)))
            replacements.update(part.replacements)
            provenance = part.provenance
        return cls(targets, replacements, provenance)

    def to_text(self) -> str:
        """The canonical text: targets and groups sorted, records by distribution and version, one record a line."""
        lines = ["{", f' "schema_version": {_json(SCHEMA_VERSION)},', *_provenance_lines(self.provenance)]
        targets = [
            f"  {_json(target)}: [\n"
            + ",\n".join(f"   {_json(record.to_dict())}" for record in sorted(self.targets[target], key=_record_order))
            + "\n  ]"
            for target in sorted(self.targets)
        ]
        replacements = [f"  {_json(id)}: {_json(self.replacements[id])}" for id in sorted(self.replacements)]
        lines.append(' "targets": {' + ("\n" + ",\n".join(targets) + "\n }" if targets else "}") + ",")
        lines.append(' "replacements": {' + ("\n" + ",\n".join(replacements) + "\n }" if replacements else "}"))
        return "\n".join([*lines, "}"]) + "\n"


def _provenance_lines(provenance: Mapping[str, Any]) -> list[str]:
    entries = []
    for key, value in provenance.items():
        if isinstance(value, list) and value:
            entries.append(f"  {_json(key)}: [\n" + ",\n".join(f"   {_json(item)}" for item in value) + "\n  ]")
        else:
            entries.append(f"  {_json(key)}: {_json(value)}")
    return [' "provenance": {' + ("\n" + ",\n".join(entries) + "\n }," if entries else "},")]


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _record_order(record: EvidenceRecord) -> tuple[Any, ...]:
    return (record.dist or "", version_order(record.version), _json(record.to_dict()))


def version_order(version: str | None) -> tuple[tuple[int, ...], str]:
    """What sorts versions by their numbers, whatever else is in them."""
    return tuple(int(part) for part in re.findall(r"\d+", version or "")), version or ""


def _record(item: Field) -> EvidenceRecord:
    item.mapping(RECORD_KEYS)
    for key, pattern in _HASH.items():
        value = item[key].string()
        if value is not None and not pattern.fullmatch(value):
            item[key].refuse(f"a {key}-v1 hash")
    for key in ("dist", "version", "file"):
        item[key].text()
    if item["chain"].value != UNSEEN:
        item["chain"].strings()
    return EvidenceRecord.from_dict({key: value for key, value in item.value.items() if key != "file" or value})


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for key, value in pairs:
        if key in data:
            raise ValueError(f"the key {key!r} is written twice")
        data[key] = value
    return data
