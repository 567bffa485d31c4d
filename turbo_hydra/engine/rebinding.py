# SPDX-License-Identifier: Apache-2.0
"""Module globals elsewhere that hold an original follow it to what stands at its site; other holders are listed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from turbo_hydra.engine import holders
from turbo_hydra.engine.kinds import function_of, home_of
from turbo_hydra.engine.members import PreparedMember
from turbo_hydra.engine.outcomes import Outcome
from turbo_hydra.engine.targets import ABSENT, Site
from turbo_hydra.engine.transaction import Transaction


def rebind(outcomes: Iterable[Outcome]) -> None:
    """Look once for who else holds an original of an applied group; writes are journaled with the group's own."""
    applied = [outcome for outcome in outcomes if outcome.status == "applied"]
    originals: dict[int, Any] = {}
    found_for: dict[int, tuple[PreparedMember, Site, Transaction]] = {}
    for outcome in applied:
        for member in outcome.prepared.members:
            if member.site is None or member.shared_with is not None:
                continue
            member.stale_holders.clear()
            for value in (member.site.raw, function_of(member.site.raw)):
                if value is not None and id(value) not in originals:
                    originals[id(value)] = value
                    found_for[id(value)] = (member, member.site, outcome.transaction)
    for holder in holders.find(originals):
        _rebind_one(*found_for[id(holder.original)], holder)


def _rebind_one(member: PreparedMember, site: Site, transaction: Transaction, holder: holders.Holder) -> None:
    # The module of a replacement may hold the original on purpose: its guard returns the original's result.
    if member.member.replacement.startswith(holder.module + "."):
        return
    current = site.read()
    if current is holder.original or current is ABSENT or holder.owner is function_of(current):
        return
    package = member.member.target.split(".")[0]
    at_home = home_of(holder.original) in (None, package)
    if not at_home and holder.module.split(".")[0] != package:
        # The target is one name for what another package made: that one's own names are not ours to change.
        return
    if holder.kind != "module" or not member.member.rebind or not at_home:
        member.stale_holders.append(holder.place)
        return
    held = Site(holder.place, holder.owner, holder.name, holder.original, True, "function")
    try:
        transaction.write(held, current if holder.original is site.raw else function_of(current))
    except Exception as error:
        member.stale_holders.append(f"{holder.place} ({type(error).__name__}: {error})")
    else:
        member.rebound.append(holder.place)
