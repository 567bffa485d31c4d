# SPDX-License-Identifier: Apache-2.0
"""Writing at sites so that it can be taken back exactly."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from turbo_hydra.engine.kinds import CACHE_TYPE, function_of
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
        try:
            site.write(value)
        finally:
            # Also where the owner stored it and then raised, where an interrupt came, or something else was stored.
            if site.read() is not before:
                self.writes.append(Write(site, before, value))
        if site.read() is not value:
            raise SiteChangedError(f"'{site.path}' does not hold what was written: its owner stored something else")
        _clear_cache(before)

    def rollback(self) -> list[str]:
        """Take all writes back, the last first.

        Returns
        -------
        list[str]
            What could not be put back, one sentence each; empty after a complete rollback.
        """
        problems = []
        while self.writes:
            problem = _put_back(self.writes.pop())
            if problem:
                problems.append(problem)
        return problems


def _clear_cache(value: Any) -> None:
    """Results cached before a write must not come back after it, nor after it is taken back."""
    function = function_of(value)
    if isinstance(function, CACHE_TYPE):
        function.cache_clear()


def _put_back(write: Write) -> str:
    try:
        if write.before is not ABSENT or write.site.read() is not ABSENT:
            write.site.write(write.before)
        problem = "" if write.site.read() is write.before else "it holds something else"
        _clear_cache(write.before)
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
    return problem and f"'{write.site.path}' could not be put back: {problem}"


def covered(transactions: Mapping[str, Transaction], together: Sequence[tuple[str, str]] = ()) -> dict[str, Write]:
    """The groups that cannot be taken back, each with a write that something else lies on.

    That is what somebody else has written since, or the write of a group that itself cannot be taken back.

    Parameters
    ----------
    transactions : mapping
        Group id to what it has written.
    together : sequence of pairs of group ids
        Of each pair, one cannot be taken back without the other.
    """
    by_site: dict[tuple[int, str], list[tuple[str, Write]]] = {}
    writes = [(id, write) for id, transaction in transactions.items() for write in transaction.writes]
    for id, write in sorted(writes, key=lambda item: item[1].number):
        by_site.setdefault(write.site.key, []).append((id, write))
    found: dict[str, Write] = {}
    for entries in by_site.values():
        top = entries[-1][1]
        if top.site.read() is not top.after:
            for id, write in entries:
                found.setdefault(id, write)
    while True:
        below = {
            id: write
            for entries in by_site.values()
            for position, (id, write) in enumerate(entries)
            if id not in found and any(other in found for other, _ in entries[position:])
        }
        both_ways = itertools.chain(together, (pair[::-1] for pair in together))
        below |= {id: found[other] for id, other in both_ways if id not in found and other in found}
        if not below:
            return found
        found.update(below)


def take_back(transactions: Mapping[str, Transaction]) -> dict[str, dict[tuple[int, str], str]]:
    """Take back the writes of several groups, the last of all first.

    Returns
    -------
    dict[str, dict[tuple[int, str], str]]
        Group id to what could not be put back, one sentence for each site, for each group that had written something.
    """
    problems: dict[str, dict[tuple[int, str], str]] = {
        id: {} for id, transaction in transactions.items() if transaction.writes
    }
    writes = [(id, write) for id in problems for write in transactions[id].writes]
    for id, write in sorted(writes, key=lambda item: item[1].number, reverse=True):
        problem = _put_back(write)
        if problem:
            problems[id][write.site.key] = problem
    for id in problems:
        transactions[id].writes.clear()
    return problems
