# SPDX-License-Identifier: Apache-2.0
"""What turbo-opt prints for people."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from turbo_hydra.config.checking import FITS, MEANING, CheckResult
from turbo_hydra.config.drift import Drift
from turbo_hydra.engine.declarations import Group
from turbo_hydra.kernels import STEMS, unusable, without_device

# Wide enough that nothing is cut where there is no terminal to measure.
_PIPE_WIDTH = 200


def _console() -> Console:
    return Console(file=sys.stdout, width=None if sys.stdout.isatty() else _PIPE_WIDTH, highlight=False)


def group_data(group: Group) -> dict[str, Any]:
    """A group as plain data."""
    return {
        "id": group.id,
        "catalog": group.catalog,
        "purpose": group.purpose,
        "depends_on": list(group.depends_on),
        "options": _options(group),
        "members": [
            {
                "kind": member.kind,
                "target": member.target,
                "replacement": member.replacement,
                "aliases": list(member.aliases),
                "late": member.late,
            }
            for member in group.members
        ],
        "about": dataclasses.asdict(group.about) if group.about else None,
    }


def _options(group: Group) -> list[dict[str, Any]]:
    if group.options is None:
        return []
    defaults = group.options()
    return [
        {
            "name": item.name,
            "type": item.type if isinstance(item.type, str) else getattr(item.type, "__name__", str(item.type)),
            "default": getattr(defaults, item.name),
            "help": item.metadata.get("help", ""),
        }
        for item in dataclasses.fields(group.options)
    ]


def groups(found: Sequence[Group]) -> None:
    """Print groups, each with its targets, options and what it costs."""
    console = _console()
    for group in found:
        console.print(Text.assemble((group.id, "bold"), f"  ({group.purpose}, {group.catalog})"))
        if group.about:
            about = group.about
            console.print(Text(f"  {about.why}"))
            reach = [f"numerics: {about.numerics}", f"memory: {about.memory}"]
            reach += [f"backward: {'yes' if about.backward else 'no'}", f"compile: {'yes' if about.compile else 'no'}"]
            reach += ["puts code under torch.compile"] if about.compiles else []
            console.print(Text("  " + "; ".join(reach)))
            for label, text in (("validated", about.validated), ("until", about.until)):
                if text:
                    console.print(Text(f"  {label}: {text}"))
        if group.depends_on:
            console.print(Text(f"  depends on: {', '.join(group.depends_on)}"))
        for member in group.members:
            console.print(Text(f"  {member.kind} {member.target}" + (" (late)" if member.late else "")))
        for option in _options(group):
            said = f": {option['help']}" if option["help"] else ""
            console.print(Text(f"  option {option['name']} = {option['default']!r} ({option['type']}){said}"))
        console.print()


def kernels() -> None:
    """Print which Triton kernels this machine can use, or why it can use none."""
    reason = unusable(device=False) or without_device()
    said = f"none of {len(STEMS)} can be used: {reason}" if reason else f"can be used: {', '.join(STEMS)}"
    _console().print(Text.assemble(("kernels", "bold"), f"  {said}"))


def drift(found: Drift) -> None:
    """Print the commits at which a target changed, each with the diff of its definition, then where it ends."""
    console = _console()
    for change in found.changes:
        console.print(Text(f"{change.commit[:12]} {change.subject}", "bold"))
        console.print(Text(f"  {change.target} ({', '.join(change.groups)}): {MEANING[change.status]}"))
        for line in change.diff.splitlines():
            colour = {"+": "green", "-": "red"}.get(line[:1], "")
            console.print(Text(f"    {line}", colour))
    console.print(Text(f"{found.commits} commits, {len(found.changes)} changes of targets; at the end:"))
    check(CheckResult(targets=found.targets))


def check(result: CheckResult) -> None:
    """Print the outcome of a check: a row for each target, then what else was found."""
    console = _console()
    table = Table(box=None, pad_edge=False)
    for name in ("group", "target", "status", "place"):
        table.add_column(name, overflow="fold")
    for item in result.targets:
        colour = "green" if item.status in FITS else ("yellow" if item.status == "unseen" or not item.on else "red")
        group = item.group if item.on else f"{item.group} (off)"
        table.add_row(Text(group), Text(item.target), Text(item.status, colour), Text(item.place))
    console.print(table)
    for item in result.targets:
        if item.status not in FITS:
            said = [MEANING[item.status]]
            said += [f"expected {item.expected}"] if item.expected else []
            said += [f"found {item.found}"] if item.found else []
            said += [item.detail] if item.detail else []
            console.print(Text(f"{item.target}: {'; '.join(said)}"))
    for sentence in result.problems:
        console.print(Text(f"problem: {sentence}"))
    for sentence in result.notes:
        console.print(Text(f"note: {sentence}"))
    counts = {status: sum(item.status == status for item in result.targets) for status in MEANING}
    tally = ", ".join(f"{count} {status}" for status, count in counts.items() if count) or "no target"
    console.print(Text(f"{'matches' if result.matches else 'does not match'}: {tally}"))


def side_by_side(reports: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
    """Print several runs, a column each: status of each group, then steps and losses."""
    console = _console()
    table = Table(box=None, pad_edge=False)
    table.add_column("", overflow="fold")
    for name, _ in reports:
        table.add_column(name, overflow="fold")
    ids = dict.fromkeys(entry["group"] for _, data in reports for entry in data["execution"])
    by_run = [{entry["group"]: entry for entry in data["execution"]} for _, data in reports]
    table.add_row("status", *(str(data["status"]) for _, data in reports))
    for id in ids:
        table.add_row(Text(id), *(Text(_outcome(run.get(id))) for run in by_run))
    for key in ("count", "median_ms", "samples_per_s", "first_loss", "last_loss"):
        values = [(data.get("steps") or {}).get(key) for _, data in reports]
        if any(value is not None for value in values):
            table.add_row(f"steps.{key}", *("-" if value is None else f"{value:.6g}" for value in values))
    console.print(table)


def _outcome(entry: Mapping[str, Any] | None) -> str:
    if entry is None:
        return "-"
    reasons = ", ".join(map(str, entry.get("reasons") or ()))
    return f"{entry['status']} ({reasons})" if reasons else str(entry["status"])
