# SPDX-License-Identifier: Apache-2.0
"""A member made ready: its sites, its checks, and the object that will stand there."""

from __future__ import annotations

import dataclasses
import sys
from dataclasses import dataclass, field
from typing import Any, Protocol

from turbo_hydra.engine import building
from turbo_hydra.engine.checks import Check, check_evidence
from turbo_hydra.engine.declarations import Group, Member, Place
from turbo_hydra.engine.distributions import installed_version
from turbo_hydra.engine.evidence import LiveReader
from turbo_hydra.engine.hits import Hits
from turbo_hydra.engine.kinds import function_of
from turbo_hydra.engine.objects import load_object
from turbo_hydra.engine.selection import Selection
from turbo_hydra.engine.targets import ResolutionError, Site, describe, own_namespace, resolve


class Shadow(Protocol):
    """Runs the original beside the replacement; the engine itself knows nothing of tensors."""

    def __call__(self, original: Any, replacement: Any) -> Any:
        """A function that is called in place of `replacement`, except under a compiler."""

    def to_dict(self) -> dict[str, Any]:
        """What was found, as plain JSON data."""


@dataclass
class PreparedMember:
    """A member with what was found for it.

    Attributes
    ----------
    site : Site or None
        Where the target lives; None while it is late, or where it could not be resolved.
    alias_sites : tuple[Site, ...]
        Sites of the aliases that are not the target's own.
    hits : Hits or None
        Tallies; None where calls are not counted.
    checks : list[Check]
        All checks of the member.
    evidence : str
        `source-v1`, `ast-v1`, `artifact-v1`, `forced` or `none`.
    place : Place or None
        File and line of the original.
    pending : bool
        Whether the target has yet to come into being.
    replacement, condition : object
        The objects that the member names, once they are loaded.
    """

    group: Group
    member: Member
    options: Any
    site: Site | None = None
    alias_sites: tuple[Site, ...] = ()
    hits: Hits | None = None
    checks: list[Check] = field(default_factory=list)
    evidence: str = "none"
    place: Place | None = None
    pending: bool = False
    stale_holders: list[str] = field(default_factory=list)
    rebound: list[str] = field(default_factory=list)
    shared_with: str | None = None
    shadow: Shadow | None = None
    replacement: Any = None
    condition: Any = None
    _built: tuple[Any, Any] | None = None

    @property
    def sites(self) -> tuple[Site, ...]:
        """The target's site and those of its aliases."""
        return (self.site, *self.alias_sites) if self.site else ()

    @property
    def label(self) -> str:
        """Group and target, for messages."""
        return f"{self.group.id} {self.member.target}"

    def fail(
        self, code: str, message: str, *, expected: str = "", actual: str = "", place: Place | None = None
    ) -> None:
        """Record a structural failure, which `force` does not lift."""
        place = place or self.member.place
        self.checks.append(
            Check(code, "fail", self.group.id, self.member.target, expected, actual, place, message=message)
        )

    def warn(self, code: str, message: str, *, expected: str = "", actual: str) -> None:
        """Record a warning about what was found."""
        self.checks.append(
            Check(code, "warning", self.group.id, self.member.target, expected, actual, self.place, message=message)
        )

    def prepare(self, selection: Selection, reader: LiveReader, loaded: frozenset[str]) -> None:
        """Resolve the target and make all checks that can be made before anything is written.

        Parameters
        ----------
        selection : Selection
            Evidence and settings.
        reader : LiveReader
            Reads evidence of what is there.
        loaded : frozenset[str]
            Names of the modules that were loaded before the attempt began.
        """
        late = self.member.late or self.member.target.startswith("__main__.")
        if late and not self.exists():
            self.pending = True
            records = selection.evidence.get(self.member.target, ())
            if not records and not self.member.observer:
                message = f"no evidence was recorded for '{self.member.target}'; take it with turbo-opt generate"
                self.checks.append(
                    Check(
                        "evidence.missing", "fail", self.group.id, self.member.target, forceable=True, message=message
                    )
                )
            self._load_objects()
            return
        self._prepare_found(selection, reader)
        if self.site is not None and not late and self.site.home in loaded and not self.member.observer:
            self._warn_of_timing()

    def _prepare_found(self, selection: Selection, reader: LiveReader) -> None:
        self._resolve(selection, reader)
        if self.site is None:
            return
        if not self.member.observer:
            self._check_evidence(self.site, selection, reader)
        self._load_objects()
        if self.replacement is not None:
            self.build(self.site.raw, count=selection.counts and not self.member.observer)

    def share(self, twin: PreparedMember) -> None:
        """Let the change that `twin` has made be this member's too; a change of its own would be built anew."""
        self.shared_with, self.hits, self._built = twin.group.id, twin.hits, None

    def unshare(self) -> None:
        """Let another group's change no longer be this member's, nor what it has counted."""
        if self.shared_with is not None:
            self.shared_with = self.hits = None

    def resolve_late(self, selection: Selection, reader: LiveReader) -> None:
        """What `prepare` does, once a pending target has come into being."""
        self.pending = False
        self.checks = []
        self._prepare_found(selection, reader)

    def exists(self) -> bool:
        """Whether the target can be seen without importing anything."""
        parts = self.member.target.split(".")
        for count in range(len(parts) - 1, 0, -1):
            module = sys.modules.get(".".join(parts[:count]))
            if module is not None:
                value: Any = module
                for part in parts[count:]:
                    # A class has what it inherits, too: it may be one that somebody has put in another's place.
                    holders = type.mro(value) if isinstance(value, type) else (value,)
                    namespace = next((space for item in holders if part in (space := own_namespace(item))), None)
                    if namespace is None:
                        return False
                    value = namespace[part]
                return True
        return False

    def _resolve(self, selection: Selection, reader: LiveReader) -> None:
        target = self.member.target
        try:
            self.site = resolve(target, self.member.scope)
            self.alias_sites = self._resolve_aliases(self.site)
        except ResolutionError as error:
            self._fail_to_resolve(error, selection, reader)
        except Exception as error:
            cause = f"{type(error).__name__}: {error}"
            self.fail("target.import_error", f"importing '{target}' raised {cause}", expected=target, actual=cause)
        if self.site is not None:
            self.checks.append(Check("target.resolved", "pass", self.group.id, target, actual=self.site.kind))

    def _fail_to_resolve(self, error: ResolutionError, selection: Selection, reader: LiveReader) -> None:
        target = self.member.target
        if error.owner is None or not selection.evidence.get(target):
            self.fail(error.code, str(error), expected=target)
            return
        # What was recorded was the package's own: another program has exchanged it since.
        found = describe(error.owner)
        place = reader.read(error.owner, target.split(".")[-2]).place
        message = f"'{target}' leads to {found} ({place}), which another program has put there"
        self.fail(error.code, message, expected=target.rpartition(".")[0], actual=found, place=place)

    def _resolve_aliases(self, site: Site) -> tuple[Site, ...]:
        found: dict[tuple[int, str], Site] = {}
        for path in self.member.aliases:
            alias = resolve(path, self.member.scope)
            if function_of(alias.raw) is not function_of(site.raw):
                message = f"alias '{path}' does not hold the object that '{site.path}' holds"
                self.fail("alias.identical", message, expected=site.path, actual=path)
            elif alias.key != site.key:
                found[alias.key] = alias
        return tuple(found.values())

    def _warn_of_timing(self) -> None:
        message = f"the module of '{self.member.target}' was imported before apply(); names bound from it may be stale"
        self.warn("import.timing", message, expected="not imported yet", actual="imported")

    def _check_evidence(self, site: Site, selection: Selection, reader: LiveReader) -> None:
        target = self.member.target
        live = reader.read(site.raw, site.name, site.home)
        self.place = live.place
        records = selection.evidence.get(target, ())
        check = check_evidence(self.group.id, target, records, live, installed_version)
        self.evidence = check.message if check.status == "pass" else "none"
        self.checks.append(check)

    def _load_objects(self) -> None:
        for what, path in (("replacement", self.member.replacement), ("condition", self.member.runtime_condition)):
            if path is None:
                continue
            try:
                value = load_object(path)
            except Exception as error:
                cause = f"{type(error).__name__}: {error}"
                self.fail(
                    f"{what}.import", f"the {what} '{path}' cannot be imported: {cause}", expected=path, actual=cause
                )
            else:
                setattr(self, what, value)

    def build(self, original_raw: Any, *, count: bool) -> Any:
        """Make the raw object that will stand at the site over `original_raw`; failures become checks.

        Parameters
        ----------
        original_raw : object
            What the site holds below the member.
        count : bool
            Whether calls are counted.

        Returns
        -------
        object or None
            None if a check failed; the same object when asked again for the same original.
        """
        if self._built is None or self._built[0] is not original_raw:
            self._built = (original_raw, building.build(self, original_raw, count=count))
        return self._built[1]

    def to_dict(self) -> dict[str, Any]:
        """The report's entry."""
        return {
            "target": self.member.target,
            "kind": self.site.kind if self.site else self.member.kind,
            "member": self.member.kind,
            "replacement": self.member.replacement,
            "place": str(self.place) if self.place else None,
            "evidence": self.evidence,
            "observer": self.member.observer,
            "pending": self.pending,
            "shared_with": self.shared_with,
            "hits": self.hits.to_dict() if self.hits else None,
            "shadow": self.shadow.to_dict() if self.shadow else None,
            "rebound": list(self.rebound),
            "stale_holders": list(self.stale_holders),
        }


def over(site: Site, raw: Any) -> Site:
    """`site` as it is once its owner itself holds `raw`."""
    return dataclasses.replace(site, raw=raw, own=True)
