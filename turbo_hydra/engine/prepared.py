# SPDX-License-Identifier: Apache-2.0
"""What a plan says, as plain data that crosses processes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class PreparedExecution:
    """What `check()` returns and `report.prepared_execution` holds.

    Attributes
    ----------
    environment : dict[str, Any]
        Host, interpreter and versions.
    groups : list[dict[str, Any]]
        Each group with its decision (`apply`, `skip`, `block`), the reasons for it, its options and members.
    conflicts : list[dict[str, Any]]
        Members that cannot both be applied.
    execution_order : list[str]
        Ids of the groups that are applied, in order.
    checks : list[dict[str, Any]]
        All checks, with code, status, expected, actual, place and message.
    imports_stay : bool
        Whether the modules that the check imported stay imported in this process.
    """

    environment: dict[str, Any]
    groups: list[dict[str, Any]]
    conflicts: list[dict[str, Any]]
    execution_order: list[str]
    checks: list[dict[str, Any]]
    imports_stay: bool = False

    def decision(self, group: str) -> str:
        """The decision on a group.

        Raises
        ------
        KeyError
            If no catalog declares it.
        """
        for entry in self.groups:
            if entry["group"] == group:
                return str(entry["decision"])
        raise KeyError(group)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> PreparedExecution:
        """The inverse of `to_dict`."""
        return cls(**data)
