# SPDX-License-Identifier: Apache-2.0
"""Static evidence: the same record as of the live object, or the reason why the text does not give it."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from turbo_hydra.config.static.decorators import chain
from turbo_hydra.config.static.objects import Names
from turbo_hydra.config.static.served import Served, Serving, aliases
from turbo_hydra.config.static.things import Absent, Defined, Module, Native, Unseen
from turbo_hydra.config.static.trees import SourceFile, SourceTree
from turbo_hydra.engine.artifacts import artifact_hash
from turbo_hydra.engine.canonical import ast_hash, source_hash
from turbo_hydra.engine.distributions import installed_version
from turbo_hydra.engine.evidence import EvidenceRecord, joined_hashes


@dataclass(frozen=True)
class Seen:
    """What a target looks like in the files.

    Parameters
    ----------
    record : EvidenceRecord or None
        None where it cannot be seen.
    reason : str
        Why it cannot.
    line : int
        Where the definition begins; 0 where there is none.
    text : str
        The definition, for a diff.
    missing : bool
        Whether the name is not there, rather than out of sight.
    """

    record: EvidenceRecord | None
    reason: str = ""
    line: int = 0
    text: str = ""
    missing: bool = False

    @property
    def place(self) -> str:
        """`file:line` of the definition."""
        return f"{self.record.file}:{self.line}" if self.record else ""


class StaticReader:
    """Reads evidence from source trees; parses each file once and executes nothing.

    Parameters
    ----------
    trees : sequence of SourceTree
        Where modules are looked for, in order.
    parsed : dict, optional
        Modules by their files, for readers of several states of one tree to share.
    serving : sequence of Serving
        What import groups put in the place of modules.
    repository : Path, optional
        The model's repository, for import groups that serve files of it.
    """

    def __init__(
        self,
        trees: Sequence[SourceTree],
        parsed: dict[SourceFile, Module] | None = None,
        serving: Sequence[Serving] = (),
        repository: Path | None = None,
    ) -> None:
        served = [Served(trees, serving, repository or Path())] if serving else []
        self.names = Names([*served, *trees], parsed, aliases(serving))

    def read(self, target: str) -> Seen:
        """The evidence of a target, a dotted path."""
        thing = self.names.resolve(target)
        if isinstance(thing, Native):
            return self._native(thing)
        if isinstance(thing, (Unseen, Absent)):
            return Seen(None, thing.reason, missing=isinstance(thing, Absent))
        if isinstance(thing, Module):
            return Seen(None, f"'{target}' is a module")
        return self._evidence(target, thing)

    def _evidence(self, target: str, thing: Defined) -> Seen:
        file = thing.module.file
        if len(thing.parts) == 1:
            hashes = source_hash(thing.found.text), ast_hash(thing.node)
        else:
            hashes = joined_hashes(thing.parts)
        record = EvidenceRecord(file.dist, file.version, *hashes, self._chain(target, thing), file.file)
        return Seen(record, line=thing.found.line, text="\n".join(part.text for part in thing.parts) + "\n")

    def _native(self, thing: Native) -> Seen:
        """What the record of an installed distribution says of the binaries behind an entry without source.

        A wheel's is not taken: its binaries are those of the platform that it was built for.
        """
        file = thing.file
        installed = file.dist is not None and installed_version(file.dist) == file.version
        artifact = artifact_hash(file.module, None) if installed and not file.is_package else None
        if artifact is None:
            return Seen(None, thing.reason)
        return Seen(EvidenceRecord(file.dist, file.version, None, None, (), file.file, artifact))

    def _chain(self, target: str, thing: Defined) -> tuple[str, ...] | None:
        layers: list[str] = []
        for part in thing.parts:
            found = chain(self.names, thing.module, part.node)
            if found is None:
                return None
            layers += found
        if not isinstance(thing.node, ast.ClassDef) and self._may_be_wrapped_by_its_class(target, thing):
            return None
        return tuple(layers)

    def _may_be_wrapped_by_its_class(self, target: str, thing: Defined) -> bool:
        """Whether a class decorator or an `__init_subclass__` above may put a layer around a method."""
        owner = self.names.resolve(target.rpartition(".")[0])
        if not isinstance(owner, Defined) or not isinstance(owner.node, ast.ClassDef):
            return False
        for cls in self.names.resolution_order(owner):
            if not isinstance(cls, Defined):
                continue
            if cls.node is not owner.node and cls.scope.get("__init_subclass__"):
                return True
            if chain(self.names, cls.module, cls.node) != ():
                return True
        return False
