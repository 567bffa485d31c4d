# SPDX-License-Identifier: Apache-2.0
"""Writing at sites so that it can be taken back exactly."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

from turbo_hydra.engine.targets import ABSENT, Site

_numbers = itertools.count()


class SiteChangedError(Exception):
    """A site no longer holds what was prepared, or what was written."""


@dataclass(frozen=True)
class Write:
    """A write that was made: at `site`, over `before` (`ABSENT` where the owner did not hold the name itself).

    `number` grows from write to write in the whole process.
    """

    site: Site
    before: Any
    after: Any
    number: int = field(default_factory=_numbers.__next__)


class Transaction:
    """The journal of one group's writes.

    Each write is journaled after it succeeded; `rollback` takes them back in reverse and verifies each site by
    identity.
    """

    def __init__(self) -> None:
        self.writes: list[Write] = []

    def write(self, site: Site, value: Any) -> None:
        """Make `site` hold `value`.

        Raises
        ------
        SiteChangedError
            If the site no longer holds what it held when it was prepared, or does not hold `value` afterwards.
        """
        before = site.read()
        expected = site.raw if site.own else ABSENT
        if before is not expected:
            raise SiteChangedError(f"'{site.path}' has changed since it was checked: it now holds {before!r}")
        site.write(value)
        # Journaled before it is verified: an owner that stored something else must be put back as well.
        self.writes.append(Write(site, before, value))
        if site.read() is not value:
            raise SiteChangedError(f"'{site.path}' does not hold what was written: its owner stored something else")

    def blocked(self) -> Write | None:
        """The first write whose site somebody else has written since; undoing over it would drop their work."""
        newest: set[tuple[int, str]] = set()
        for write in reversed(self.writes):
            if write.site.key not in newest and write.site.read() is not write.after:
                return write
            newest.add(write.site.key)
        return None

    @property
    def last(self) -> int:
        """Number of the last write; -1 where there is none."""
        return self.writes[-1].number if self.writes else -1

    def rollback(self) -> list[str]:
        """Take all writes back, the last first.

        Returns
        -------
        list[str]
            What could not be put back, one sentence each; empty after a complete rollback.
        """
        problems = []
        while self.writes:
            write = self.writes.pop()
            try:
                if write.before is not ABSENT or write.site.read() is not ABSENT:
                    write.site.write(write.before)
                restored = write.site.read() is write.before
                problem = "" if restored else "it holds something else"
            except Exception as error:
                problem = f"{type(error).__name__}: {error}"
            if problem:
                problems.append(f"'{write.site.path}' could not be put back: {problem}")
        return problems
