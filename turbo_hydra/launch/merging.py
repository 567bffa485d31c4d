# SPDX-License-Identifier: Apache-2.0
"""The run's report, from those of its ranks: what they agree on, and what they do not."""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from turbo_hydra.engine.report import summary_of
from turbo_hydra.launch import files, outcome
from turbo_hydra.launch.child_report import CHILDREN
from turbo_hydra.launch.job import Job

SCHEMA_VERSION = "turbo_hydra/report/v1"
# From best to worst: where ranks differ, a group has the worst of its statuses.
STATUSES = ("applied", "skipped", "not_started", "blocked", "rolled_back", "failed")
TALLIES = ("replacement", "original", "traced")

Report = dict[str, Any]


def merge(
    reports: Sequence[Mapping[str, Any]],
    *,
    run_id: str,
    expected: int,
    status: int,
    agents: Sequence[Mapping[str, Any]] = (),
    children: Sequence[Mapping[str, Any]] = (),
) -> Report:
    """Merge the reports of the ranks.

    Parameters
    ----------
    reports : sequence of mapping
        What each rank wrote last; a rank that wrote nothing is missing.
    run_id : str
        Names the run.
    expected : int
        The number of ranks that the run was to have.
    status : int
        The run's exit status.
    agents : sequence of mapping
        What each node's agent recorded when it ended.
    children : sequence of mapping
        What the children of ranks counted, data loaders' workers for instance. `hits` of the report count a rank and
        its children together; `hits_in_children` is the part of the children, where there is one.

    Returns
    -------
    dict
        The report, as plain data.
    """
    by_rank = {int(report["rank"]): _with_children(report, children) for report in reports}
    # A command of the user's starts as many ranks as it likes; each of them knows how many there are.
    expected = max([expected, *(int(report.get("world_size") or 1) for report in reports)])
    ends = {int(rank): end for agent in agents for rank, end in agent.get("ranks", {}).items()}
    numbers = sorted({*range(expected), *by_rank})
    ended_well = bool(agents) and all(agent.get("status") == 0 for agent in agents)
    ranks = [_rank(rank, by_rank.get(rank), ends.get(rank), ended_well) for rank in numbers]
    base = next((by_rank[rank] for rank in numbers if "execution" in by_rank.get(rank, {})), {})
    execution = _execution(by_rank)
    failures = [agent["first_failure"] for agent in _by_end(agents) if agent.get("first_failure")]
    return {
        "schema_version": SCHEMA_VERSION,
        "run_id": run_id,
        "status": _status(status, ranks),
        "exit_status": status,
        "summary": summary_of(execution),
        "optimization_config": base.get("optimization_config"),
        "optimization_config_path": base.get("optimization_config_path"),
        "runtime_config_path": base.get("runtime_config_path"),
        "prepared_execution": base.get("prepared_execution"),
        "execution": execution,
        "ranks": ranks,
        "disagreements": disagreements(by_rank),
        "steps": _steps(by_rank),
        "failure": failures[0] if failures else None,
        "nodes": [
            {name: agent.get(name) for name in ("node", "host", "status", "network", "trouble")} for agent in agents
        ],
    }


def _by_end(agents: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Sort agents by when what went wrong there went wrong: what follows on other nodes comes later."""

    def when(agent: Mapping[str, Any]) -> float:
        return float((agent.get("first_failure") or {}).get("time") or agent.get("ended") or 0)

    return sorted(agents, key=when)


def _rank(
    rank: int, report: Mapping[str, Any] | None, end: Mapping[str, Any] | None, ended_well: bool
) -> dict[str, Any]:
    said = report or {}
    entry = {
        "rank": rank,
        "host": said.get("host"),
        "pid": said.get("pid", (end or {}).get("pid")),
        "status": said.get("status", "missing"),
        "exit_status": said.get("exit_status"),
        "bound": said.get("bound"),
    }
    returncode = None if end is None else end.get("returncode")
    if returncode is not None:
        # The operating system's word is the last: a rank may say that it succeeded and crash on its way out.
        entry["exit_status"] = outcome.from_returncode(int(returncode))
        if returncode < 0:
            entry["status"] = "killed"
        elif entry["status"] in {"running", "succeeded", "missing"}:
            entry["status"] = "failed"
    elif entry["status"] == "running" and ended_well:
        entry.update(status="succeeded", exit_status=0)  # by os._exit, or an exec: it could not say so itself
    elif entry["status"] == "running":
        entry["status"] = "killed"  # its agent was, too, and recorded nothing
    return entry


def _status(status: int, ranks: Sequence[Mapping[str, Any]]) -> str:
    if status == 0:
        return "succeeded"
    if status == outcome.STRICT_STOP and any(rank["status"] == "strict_stop" for rank in ranks):
        return "strict_stop"
    return "failed" if status < 128 else "killed"


def _execution(by_rank: Mapping[int, Mapping[str, Any]]) -> list[dict[str, Any]]:
    merged: dict[str, dict[str, Any]] = {}
    for _, report in sorted(by_rank.items()):
        for entry in report.get("execution") or ():
            if entry["group"] not in merged:
                merged[entry["group"]] = copy.deepcopy(entry)
                continue
            group = merged[entry["group"]]
            group["status"] = max(group["status"], entry["status"], key=_badness)
            group["reasons"] = list(dict.fromkeys([*group.get("reasons", ()), *entry.get("reasons", ())]))
            _add_hits(group.get("members", ()), entry.get("members", ()))
    for group in merged.values():
        _split_by_rank(group, by_rank)
    return list(merged.values())


def _badness(status: str) -> int:
    return STATUSES.index(status) if status in STATUSES else len(STATUSES)


def _add_hits(members: Iterable[dict[str, Any]], others: Iterable[Mapping[str, Any]]) -> None:
    by_target = {other["target"]: other for other in others}
    for member in members:
        other = by_target.get(member["target"], {})
        for key in ("hits", "hits_in_children"):
            if member.get(key) or other.get(key):
                member[key] = _sum(member.get(key) or {}, other.get(key) or {})


def _sum(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    total: dict[str, Any] = {name: (one.get(name) or 0) + (other.get(name) or 0) for name in TALLIES}
    return {**total, "reasons": dict(Counter(one.get("reasons") or {}) + Counter(other.get("reasons") or {}))}


def _with_children(report: Mapping[str, Any], children: Iterable[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Add what a rank's children counted to what it counted itself; those of an earlier attempt are gone with it."""

    def of(told: Mapping[str, Any]) -> tuple[int, int]:
        return int(told["rank"]), int(told.get("attempt") or 0)

    own = [child for child in children if of(child) == of(report)]
    if not own or not report.get("execution"):
        return report
    counted = copy.deepcopy(dict(report))
    groups = {entry["group"]: entry for entry in counted["execution"]}
    for child in own:
        for entry in child.get("execution") or ():
            told = [{**member, "hits_in_children": member.get("hits")} for member in entry.get("members", ())]
            _add_hits(groups.get(entry["group"], {}).get("members", ()), told)
    return counted


def _split_by_rank(group: dict[str, Any], by_rank: Mapping[int, Mapping[str, Any]]) -> None:
    """Keep the hits of each rank where one took the replacement or the original and another did not."""
    for member in group.get("members", ()):
        found = {rank: _hits(report, group["group"], member["target"]) for rank, report in by_rank.items()}
        kinds = {(bool(hits.get("replacement")), bool(hits.get("original"))) for hits in found.values()}
        if len(kinds) > 1:
            member["hits_by_rank"] = {str(rank): hits for rank, hits in sorted(found.items())}


def _hits(report: Mapping[str, Any], group: str, target: str) -> dict[str, Any]:
    for entry in report.get("execution") or ():
        if entry["group"] == group:
            for member in entry.get("members", ()):
                if member["target"] == target:
                    return dict(member.get("hits") or {})
    return {}


def disagreements(by_rank: Mapping[int, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Name what should be equal on all ranks and is not: decisions, statuses, evidence, versions, module paths.

    Returns
    -------
    list of dict
        `field`, and `values` from each rank's number to what it has.
    """
    told = {rank: report for rank, report in by_rank.items() if report.get("execution")}
    flat = {rank: dict(_facts(report)) for rank, report in told.items()}
    found = []
    for field in dict.fromkeys(name for facts in flat.values() for name in facts):
        values = {str(rank): facts.get(field) for rank, facts in sorted(flat.items())}
        if len({json.dumps(value, sort_keys=True, default=str) for value in values.values()}) > 1:
            found.append({"field": field, "values": values})
    return found


def _facts(report: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    environment = (report.get("prepared_execution") or {}).get("environment") or {}
    yield "run_id", report.get("run_id")
    yield "optimization_config", report.get("optimization_config")
    yield "environment.python", environment.get("python")
    yield "environment.backend", environment.get("backend")
    yield "environment.repository", environment.get("repository")
    for name, version in sorted((environment.get("versions") or {}).items()):
        yield f"environment.versions.{name}", version
    for module, path in sorted((report.get("modules") or {}).items()):
        yield f"modules.{module}", path
    for entry in report["execution"]:
        group = f"execution.{entry['group']}"
        yield f"{group}.decision", entry.get("decision")
        yield f"{group}.status", entry.get("status")
        yield f"{group}.reasons", entry.get("reasons")
        for member in entry.get("members", ()):
            for name in ("kind", "place", "evidence"):
                yield f"{group}.{member['target']}.{name}", member.get(name)


def _steps(by_rank: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
    """Merge what the meters saw: rates add up, the slowest rank's step is the run's."""
    found = {rank: report["steps"] for rank, report in sorted(by_rank.items()) if report.get("steps")}
    if not found:
        return {}

    def over(name: str, combine: Callable[[list[float]], float]) -> float | None:
        values = [steps.get(name) for steps in found.values()]
        numbers = [float(value) for value in values if value is not None]
        return combine(numbers) if numbers and len(numbers) == len(values) else None

    first = next(iter(found.values()))
    count = over("count", min)
    return {
        "count": None if count is None else int(count),
        "median_ms": over("median_ms", max),
        "cpu_median_ms": over("cpu_median_ms", max),
        "samples_per_s": over("samples_per_s", sum),
        "tokens_per_s": over("tokens_per_s", sum),
        "tflops": over("tflops", sum),
        "utilisation": over("utilisation", min),
        "data_wait_share": over("data_wait_share", max),
        "peak_memory": _peaks(found.values()),
        "first_loss": first.get("first_loss"),
        "last_loss": first.get("last_loss"),
        "time_to_first_step_s": over("time_to_first_step_s", max),
        "ranks": {str(rank): steps for rank, steps in found.items()},
    }


def _peaks(found: Iterable[Mapping[str, Any]]) -> dict[str, int | None]:
    """The largest of each kind of memory that a rank took."""
    kinds: dict[str, int | None] = {}
    for steps in found:
        for kind, value in (steps.get("peak_memory") or {}).items():
            known = [number for number in (kinds.get(kind), value) if number is not None]
            kinds[kind] = max(known) if known else None
    return kinds


def own_status(job: Job, status: int) -> int:
    """Return the exit status that a command's ranks give it; launchers of others say 1 whatever a rank said.

    Of several nodes, the one that failed first gives it.
    """
    if job.command is None:
        ends = _by_end(_read_each(job.folder / "agents", "*.json", "node"))
        own = [int(agent["status"]) for agent in ends if agent.get("first_failure")]
        return own[0] if own and len(ends) > 1 and 0 < status < 128 else status
    if status != 1:
        return status
    said = [
        report
        for report in _read_each(job.folder / "ranks", "*/report.json", "rank")
        if report.get("exit_status") and report.get("status") in {"failed", "strict_stop"}
    ]
    return int(min(said, key=lambda report: report.get("ended") or 0)["exit_status"]) if said else status


def read(job: Job, status: int) -> Report:
    """Read what ranks and agents left in a run's folder, and merge it."""
    return merge(
        _read_each(job.folder / "ranks", "*/report.json", "rank"),
        run_id=job.run_id,
        expected=0 if job.command else int(job.runtime.get("ranks") or 1) * int(job.runtime.get("nodes") or 1),
        status=status,
        agents=_read_each(job.folder / "agents", "*.json", "node"),
        children=_read_each(job.folder / "ranks", f"*/{CHILDREN}/*.json", "rank"),
    )


def _read_each(folder: Path, pattern: str, key: str) -> list[Mapping[str, Any]]:
    found = [files.read_json(path) for path in sorted(folder.glob(pattern))]
    return [data for data in found if isinstance(data, dict) and key in data]
