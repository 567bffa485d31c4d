# SPDX-License-Identifier: Apache-2.0
"""What an attempt did: JSON for machines, Markdown for people."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from turbo_hydra.engine import hidden
from turbo_hydra.engine.members import PreparedMember
from turbo_hydra.engine.prepared import PreparedExecution

if TYPE_CHECKING:
    from turbo_hydra.engine.outcomes import Outcome
    from turbo_hydra.engine.planned import Plan

SCHEMA_VERSION = "turbo_hydra/report/v1"
STATUSES = ("applied", "skipped", "blocked", "failed", "rolled_back", "not_started")
# Of an attempt: a rank writes its report every few seconds, and may not stop the training each time.
_LOOKS = 3


class OptimizationReport:
    """What `apply()` returns.

    Attributes
    ----------
    run_id : str
        Equal on all ranks of a run.
    optimization_config : dict[str, Any]
        The resolved config.
    optimization_config_path : str or None
        Absolute path of the generated file behind the evidence.
    runtime_config_path : str or None
        Path of the runtime config; None when none was given.
    """

    def __init__(
        self,
        plan: Plan,
        outcomes: Mapping[str, Outcome],
        *,
        run_id: str,
        describe: Mapping[str, Any],
    ) -> None:
        self.run_id = run_id
        self._plan = plan
        self.optimization_config: dict[str, Any] = dict(describe.get("optimization_config") or {})
        self.optimization_config_path: str | None = describe.get("optimization_config_path")
        self.runtime_config_path: str | None = describe.get("runtime_config_path")
        self._outcomes = outcomes
        self._looks = _LOOKS

    @property
    def prepared_execution(self) -> PreparedExecution:
        """Checks, decisions, conflicts and order."""
        return self._plan.to_execution()

    @property
    def summary(self) -> dict[str, int]:
        """How many groups have each of the six statuses; observers are listed, not counted."""
        return summary_of(self.execution)

    @property
    def execution(self) -> list[dict[str, Any]]:
        """Each group with its status, and its members with their hits as they are now."""
        return [_entry(outcome) for outcome in self._outcomes.values()]

    @property
    def reached(self) -> list[dict[str, Any]]:
        """Of `execution`, the members that have been called, with their hits alone: quick to make."""
        found = []
        for id, outcome in self._outcomes.items():
            members = [
                {"target": member.member.target, "hits": hits}
                for member in outcome.prepared.members
                if member.hits is not None and any((hits := member.hits.to_dict()).values())
            ]
            if members:
                found.append({"group": id, "members": members})
        return found

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data."""
        if self._looks and hidden.look(
            [
                member
                for outcome in self._outcomes.values()
                if outcome.reported == "applied"
                for member in outcome.prepared.members
                if isinstance(member, PreparedMember)
            ]
        ):
            self._looks -= 1
        return {
            "schema_version": SCHEMA_VERSION,
            "run_id": self.run_id,
            "summary": self.summary,
            "optimization_config": self.optimization_config,
            "optimization_config_path": self.optimization_config_path,
            "runtime_config_path": self.runtime_config_path,
            "prepared_execution": self.prepared_execution.to_dict(),
            "execution": self.execution,
        }

    def summary_line(self) -> str:
        """All six counts in one line."""
        return " ".join(f"{name}={count}" for name, count in self.summary.items())

    def to_markdown(self) -> str:
        """A table of the groups and a section for each that was enabled and is not applied."""
        return to_markdown(self.to_dict())


def summary_of(execution: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """How many groups of a report's `execution` have each of the six statuses; observers are not counted."""
    statuses = [entry["status"] for entry in execution if not entry.get("observer")]
    return {status: statuses.count(status) for status in STATUSES}


def to_markdown(report: Mapping[str, Any]) -> str:
    """Render the JSON form of a report, of one rank or merged."""
    lines = [f"# Run {report['run_id']}", ""]
    lines += [" ".join(f"{name}={count}" for name, count in report["summary"].items()), ""]
    lines += ["| group | purpose | status | why | calls of replacement / original / traced |", "|---|---|---|---|---|"]
    for entry in report["execution"]:
        lines.append(
            f"| {entry['group']} | {entry['purpose']} | {entry['status']} | {', '.join(entry['reasons'])} "
            f"| {hits_text(entry)} |"
        )
    for check in report["prepared_execution"]["checks"]:
        if check["status"] in ("fail", "warning") and check["message"]:
            place = f" ({check['place']})" if check["place"] else ""
            lines += ["", f"- `{check['group'] or 'config'}` {check['code']}: {check['message']}{place}"]
            if check["expected"] or check["actual"]:
                lines += [f"  - expected: `{check['expected']}`", f"  - found: `{check['actual']}`"]
    return "\n".join(lines) + "\n"


def hits_text(entry: Mapping[str, Any]) -> str:
    """The hits of a group's members in a few characters."""
    texts = [
        f"{hits['replacement']} / {hits['original']} / {hits['traced']}"
        for member in entry["members"]
        if (hits := member["hits"]) is not None
    ]
    return "; ".join(texts) or "-"


def _entry(outcome: Outcome) -> dict[str, Any]:
    prepared = outcome.prepared
    return {
        "group": prepared.group.id,
        "purpose": prepared.group.purpose,
        "observer": prepared.group.is_observer,
        "status": outcome.reported,
        "decision": prepared.decision,
        "reasons": list(prepared.reasons),
        "error": outcome.reported_error,
        "members": [member.to_dict() for member in prepared.members],
    }


def write_json_atomic(path: Path, data: Any) -> None:
    """Write `data` as JSON so that a reader sees the old file or the new one, never a part."""
    write_text_atomic(path, json.dumps(data, indent=1, ensure_ascii=False, default=str) + "\n")


def write_text_atomic(path: Path, text: str) -> None:
    """Write `text` so that a reader sees the old file or the new one, never a part."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(text)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
