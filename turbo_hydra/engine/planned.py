# SPDX-License-Identifier: Apache-2.0
"""What a plan is made of: groups with their decisions, and what was found on the way to them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Literal

from turbo_hydra.engine.checks import Check
from turbo_hydra.engine.conflicts import Conflict
from turbo_hydra.engine.declarations import Group
from turbo_hydra.engine.import_members import PreparedImport
from turbo_hydra.engine.members import PreparedMember
from turbo_hydra.engine.prepared import PreparedExecution
from turbo_hydra.engine.selection import Selection

Decision = Literal["apply", "skip", "block"]


@dataclass
class PreparedGroup:
    """A group with its decision.

    Attributes
    ----------
    decision : {"apply", "skip", "block"}
        What will be done.
    reasons : list[str]
        Codes: why it is skipped or blocked, or which failures were forced.
    """

    group: Group
    decision: Decision = "apply"
    reasons: list[str] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    members: list[PreparedMember] = field(default_factory=list)
    options: Any = None

    def skip(self, reason: str) -> None:
        """Decide to leave the group out."""
        self.decision = "skip"
        self.reasons.append(reason)

    def block(self, *reasons: str) -> None:
        """Decide that the group cannot be applied."""
        self.decision = "block"
        self.reasons += [reason for reason in reasons if reason not in self.reasons]

    @property
    def all_checks(self) -> list[Check]:
        """Checks of the group and of its members."""
        return [*self.checks, *(check for member in self.members for check in member.checks)]

    @property
    def import_members(self) -> list[PreparedImport]:
        """The members of an import group; none of another."""
        return [member for member in self.members if isinstance(member, PreparedImport)]

    def uninstall_imports(self) -> None:
        """Take the members of an import group back."""
        for member in self.import_members:
            member.uninstall()

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data."""
        about = self.group.about
        return {
            "group": self.group.id,
            "purpose": self.group.purpose,
            "catalog": self.group.catalog,
            "place": str(self.group.place),
            "about": dataclasses.asdict(about) if about else None,
            "depends_on": list(self.group.depends_on),
            "options": dataclasses.asdict(self.options) if self.options is not None else {},
            "decision": self.decision,
            "reasons": list(self.reasons),
            "members": [
                {"target": item.member.target, "kind": item.member.kind, "replacement": item.member.replacement}
                for item in self.members
            ],
        }


@dataclass
class Plan:
    """The live plan; `to_execution` gives what of it is told.

    Attributes
    ----------
    environment : dict[str, Any]
        Host, interpreter and versions.
    groups : dict[str, PreparedGroup]
        By id, in the order in which they would be applied.
    checks : list[Check]
        Checks at the level of the config; those of groups are in `groups`.
    conflicts : list[Conflict]
        Members that cannot both be applied.
    execution_order : list[str]
        Ids of the groups that will be applied.
    covered : dict[str, str]
        Groups that are left out because another group makes all of their changes, and that group. Where it comes to
        nothing, they are applied themselves.
    loaded : frozenset[str]
        Modules that were loaded before the attempt.
    """

    environment: dict[str, Any]
    selection: Selection
    groups: dict[str, PreparedGroup]
    checks: list[Check]
    conflicts: list[Conflict] = field(default_factory=list)
    execution_order: list[str] = field(default_factory=list)
    covered: dict[str, str] = field(default_factory=dict)
    loaded: frozenset[str] = frozenset()

    @property
    def chosen(self) -> list[PreparedGroup]:
        """The groups that are decided to be applied, as far as has been decided, in their order."""
        return [item for item in self.groups.values() if item.decision == "apply"]

    def uninstall_imports(self) -> None:
        """Take the import groups back, whose effect began when the plan was made."""
        for item in self.groups.values():
            item.uninstall_imports()

    def to_execution(self) -> PreparedExecution:
        """The plan as plain data."""
        checks = [*self.checks, *(check for group in self.groups.values() for check in group.all_checks)]
        return PreparedExecution(
            environment=self.environment,
            groups=[group.to_dict() for group in self.groups.values()],
            conflicts=[conflict.to_dict() for conflict in self.conflicts],
            execution_order=list(self.execution_order),
            checks=[check.to_dict() for check in checks],
        )
