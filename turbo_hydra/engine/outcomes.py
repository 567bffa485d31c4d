# SPDX-License-Identifier: Apache-2.0
"""What became of each group."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from turbo_hydra.engine.lost import why_lost
from turbo_hydra.engine.planned import PreparedGroup
from turbo_hydra.engine.transaction import Transaction

GroupStatus = Literal["applied", "skipped", "blocked", "failed", "rolled_back", "not_started"]


@dataclass
class Outcome:
    """What became of a group.

    Attributes
    ----------
    status : GroupStatus
        Read off the sites after the writes.
    error : str
        Why it was rolled back, failed or blocked, one sentence.
    """

    prepared: PreparedGroup
    status: GroupStatus
    error: str = ""
    transaction: Transaction = field(default_factory=Transaction)

    def give_up(self, status: GroupStatus, error: str) -> None:
        """Let the group not be applied, and share nothing any more."""
        self.status, self.error = status, error
        for member in self.prepared.members:
            member.unshare()

    @property
    def reported(self) -> GroupStatus:
        """The status as it is now.

        A module that could not be served makes its group `failed`, as does a site that somebody else has taken since;
        a group whose target has yet to come into being is `not_started`.
        """
        if self.status != "applied":
            return self.status
        if any(member.error for member in self.prepared.import_members) or self.lost:
            return "failed"
        return "not_started" if any(member.pending for member in self.prepared.members) else "applied"

    @property
    def lost(self) -> str:
        """Which site no longer holds or leads to what was written, one sentence; empty where all do."""
        own = {site.key for member in self.prepared.members for site in member.sites}
        lost = (why_lost(write) for write in self.transaction.writes if write.site.key in own)
        return next((sentence for sentence in lost if sentence), "")

    @property
    def reason(self) -> str:
        """Why the group is not what its decision asked for: the error, the first failed check, or the codes."""
        failed = [check.message for check in self.prepared.all_checks if check.status == "fail" and check.message]
        return self.error or next(iter(failed), ", ".join(self.prepared.reasons))

    @property
    def reported_error(self) -> str:
        """Why the group is not applied, one sentence; empty where it is."""
        served_badly = next((item.error for item in self.prepared.import_members if item.error), "")
        waiting = next((item.member.target for item in self.prepared.members if item.pending), None)
        waits = f"'{waiting}' has not come into being" if waiting and self.status == "applied" else ""
        return self.error or served_badly or self.lost or waits


def begun(item: PreparedGroup) -> Outcome:
    """The outcome of a group before anything is applied."""
    before: dict[str, GroupStatus] = {"apply": "not_started", "skip": "skipped", "block": "blocked"}
    return Outcome(item, before[item.decision])
