# SPDX-License-Identifier: Apache-2.0
"""The run's report for people: a table on a terminal, plain aligned lines elsewhere, Markdown in a file."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from turbo_hydra.engine.report import STATUSES
from turbo_hydra.launch.merging import TALLIES

COLUMNS = ("group", "decision", "status", "why", "hits")


def counts(report: Mapping[str, Any]) -> str:
    """Return the line that scripts look for."""
    return " ".join(f"{name}={report['summary'].get(name, 0)}" for name in STATUSES)


def rows(report: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return a row for each group: id, decision, status, why not applied, calls of replacements and originals."""
    return [
        (
            str(entry["group"]),
            str(entry.get("decision") or "-"),
            str(entry["status"]),
            ", ".join(map(str, entry.get("reasons") or ())) or "-",
            _hits(entry),
        )
        for entry in report["execution"]
    ]


def _hits(entry: Mapping[str, Any]) -> str:
    if entry["status"] != "applied":
        return "-"
    # Observers are not counted.
    tallies = [member["hits"] for member in entry.get("members", ()) if member.get("hits")]
    if not tallies:
        return "-"
    total = {name: sum(hits.get(name) or 0 for hits in tallies) for name in TALLIES}
    said = [str(total["replacement"])]
    if total["original"]:
        said.append(f"{total['original']} original")
    if total["traced"]:
        said.append(f"{total['traced']} traced")
    in_children = sum(filter(None, map(_in_children, entry["members"])))
    if in_children:
        said.append(f"of them {in_children} in children")
    return ", ".join(said)


def _in_children(member: Mapping[str, Any]) -> int | None:
    hits = member.get("hits_in_children")
    return None if hits is None else sum(hits.get(name) or 0 for name in TALLIES)


def notes(report: Mapping[str, Any], details: bool = False) -> list[str]:
    """Return what a reader must know beside the table, one sentence each.

    Parameters
    ----------
    report : mapping
        The report.
    details : bool
        Whether to add what each check expected and found.
    """
    checks = (report.get("prepared_execution") or {}).get("checks") or ()
    said = [
        _check(check, details)
        for check in checks
        if check.get("status") in {"fail", "warning"} and check.get("message")
    ]
    for entry in report["execution"]:
        if entry.get("error"):
            said.append(f"{entry['group']}: {entry['error']}")
        unused = _never_called(entry)
        if unused and (report.get("steps") or {}).get("count"):
            said.append(f"{entry['group']}: applied, and never called: {', '.join(unused)}")
    for item in report["disagreements"]:
        values = ", ".join(f"rank {rank}: {_short(value)}" for rank, value in item["values"].items())
        said.append(f"ranks disagree on {item['field']}: {values}")
    for rank in report["ranks"]:
        said += [f"rank {rank['rank']}: {warning}" for warning in (rank.get("bound") or {}).get("warnings", ())]
    return [*said, *_ends(report)]


def _check(check: Mapping[str, Any], details: bool) -> str:
    said = f"{check.get('group') or 'config'}: {check['message']}"
    if check.get("place") and str(check["place"]) not in said:
        said += f" ({check['place']})"
    if details and (check.get("expected") or check.get("actual")):
        said += f"; expected `{check.get('expected')}`, found `{check.get('actual')}`"
    return said


def _never_called(entry: Mapping[str, Any]) -> list[str]:
    if entry["status"] != "applied":
        return []
    return [
        member["target"]
        for member in entry.get("members", ())
        if member.get("hits") and not any(member["hits"].get(name) for name in TALLIES)
    ]


def _ends(report: Mapping[str, Any]) -> list[str]:
    if report["exit_status"] == 0 and all(rank["status"] == "succeeded" for rank in report["ranks"]):
        return []
    ended = ", ".join(f"rank {rank['rank']} {rank['status']}" for rank in report["ranks"])
    return [f"the run ended with status {report['exit_status']}: {ended}"]


def _short(value: Any) -> str:
    text = "nothing" if value is None else str(value)
    return text if len(text) <= 160 else f"{text[:157]}..."


def speed(report: Mapping[str, Any]) -> str | None:
    """Return the line on steps, None where no step was seen."""
    steps = report.get("steps") or {}
    if not steps.get("count"):
        return None
    said = [f"steps={steps['count']}"]
    if steps.get("median_ms") is not None:
        said.append(f"median_step={steps['median_ms']:.1f} ms")
    if steps.get("samples_per_s") is not None:
        said.append(f"samples/s={steps['samples_per_s']:.1f}")
    if steps.get("utilisation") is not None:
        said.append(f"utilisation={steps['utilisation']:.1%}")
    if steps.get("first_loss") is not None and steps.get("last_loss") is not None:
        said.append(f"loss={steps['first_loss']:.4g} -> {steps['last_loss']:.4g}")
    return "  ".join(said)


def show(report: Mapping[str, Any], folder: str, stream: TextIO | None = None) -> None:
    """Print the report: a table on a terminal, lines that can be searched elsewhere."""
    stream = stream or sys.stdout
    if stream.isatty():
        _table(report, stream)
    else:
        stream.writelines(f"{line}\n" for line in _aligned([COLUMNS, *rows(report)]) if report["execution"])
    after = [*notes(report), speed(report), counts(report), f"report: {folder}/report.md"]
    stream.writelines(f"{line}\n" for line in after if line)
    stream.flush()


def _table(report: Mapping[str, Any], stream: TextIO) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    if not report["execution"]:
        return
    colours = {"applied": "green", "skipped": "dim", "not_started": "dim"}
    table = Table(title=f"run {report['run_id']}", title_justify="left")
    for name in COLUMNS:
        table.add_column(name, overflow="fold")
    for row in rows(report):
        table.add_row(*(Text(cell, colours.get(row[2], "red") if index == 2 else "") for index, cell in enumerate(row)))
    Console(file=stream).print(table)


def _aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(line[column]) for line in lines) for column in range(len(COLUMNS))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]


def markdown(report: Mapping[str, Any]) -> str:
    """Return the report as Markdown."""
    lines = [f"# Run {report['run_id']}", "", f"Status: {report['status']} (exit status {report['exit_status']})", ""]
    lines += [f"`{counts(report)}`", ""]
    found = speed(report)
    if found:
        lines += [found, ""]
    for key, label in (("optimization_config_path", "Optimization config"), ("runtime_config_path", "Runtime config")):
        if report.get(key):
            lines += [f"{label}: `{report[key]}`", ""]
    lines += _grid(COLUMNS, rows(report))
    lines += _members(report)
    lines += ["## Ranks", ""]
    names = ("rank", "host", "pid", "status", "exit_status")
    bound = ("cpus", "memory", "how", "device")
    lines += _grid(
        (*names, "CPUs", "memory", "bound by", "device"),
        [
            [
                *(_cell(rank.get(name)) for name in names),
                *(_cell((rank.get("bound") or {}).get(name)) for name in bound),
            ]
            for rank in report["ranks"]
        ],
    )
    lines += _nodes(report)
    said = notes(report, details=True)
    if said:
        lines += ["## Notes", "", *(f"- {line}" for line in said), ""]
    if report.get("failure"):
        failure = report["failure"]
        lines += ["## Failure", "", failure["sentence"], ""]
        if failure.get("traceback"):
            lines += ["```", failure["traceback"].rstrip("\n"), "```", ""]
    return "\n".join(lines)


def _nodes(report: Mapping[str, Any]) -> list[str]:
    names = ("node", "host", "status", "interface", "address", "chosen by", "variables", "trouble")
    found = []
    for node in report.get("nodes") or ():
        choice = node.get("network") or {}
        variables = ", ".join(f"{name}={value}" for name, value in (choice.get("variables") or {}).items())
        network = [choice.get("interface"), choice.get("address"), choice.get("why"), variables]
        found.append([*(_cell(node.get(name)) for name in names[:3]), *map(_cell, network), _cell(node.get("trouble"))])
    return ["## Nodes", "", *_grid(names, found)] if found else []


def _members(report: Mapping[str, Any]) -> list[str]:
    found = [
        [
            entry["group"],
            f"`{member['target']}`",
            _cell(member.get("place")),
            *(_cell((member.get("hits") or {}).get(name)) for name in TALLIES),
            _cell(_in_children(member)),
            _cell(", ".join(map(_short, member.get("stale_holders") or ()))),
        ]
        for entry in report["execution"]
        for member in entry.get("members", ())
    ]
    names = ("group", "target", "place", *TALLIES, "in children", "stale holders")
    return ["## Targets", "", *_grid(names, found)] if found else []


def _grid(names: Sequence[str], lines: Sequence[Sequence[str]]) -> list[str]:
    if not lines:
        return []
    table = [names, ["---"] * len(names), *lines]
    return [*("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in table), ""]


def _cell(value: Any) -> str:
    return "-" if value in (None, "", [], {}) else str(value)
