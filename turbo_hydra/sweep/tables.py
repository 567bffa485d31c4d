# SPDX-License-Identifier: Apache-2.0
"""The tables of a sweep, out of `ablation.json`: cells as text, then Markdown, CSV, or a terminal's table."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TextIO

METRIC = {"step": "step time", "cpu": "CPU time of a step", "device": "device time of a step"}
VERDICTS = ("group", "gain", "95 % interval", "verdict", "numerics", "why")
COLOURS = {
    "keep": "green",
    "drop": "red",
    "broken": "bold magenta",
    "undecided": "yellow",
    "differs": "red",
    "gains together": "green",
    "costs together": "red",
}
Data = Mapping[str, Any]


def title(data: Data) -> str:
    """What was swept, in a line."""
    state = "" if data["complete"] else ", not complete"
    what = f"{data['strategy']}, {data['runs']} runs, judged by {METRIC[data['metric']]}{state}"
    return f"ablation of {data['model']}: {what}"


def verdicts(data: Data) -> list[tuple[str, ...]]:
    """A line for each verdict; the baseline run twice is the last."""
    ordered = sorted(data["verdicts"], key=lambda verdict: verdict["kind"] == "again")
    return [
        (
            verdict["name"] + _also(verdict),
            percent(verdict["gain"]),
            bounds(verdict["gain"]),
            verdict["verdict"],
            _numerics(verdict["numerics"]),
            verdict["why"],
        )
        for verdict in ordered
    ]


def _also(verdict: Data) -> str:
    others = verdict["groups"][1:] if verdict["kind"] == "group" else []
    return f" (with {', '.join(others)})" if others else ""


def rows(data: Data) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Names of the columns, and a line for each row of the sweep; columns that nothing is known of are left out."""
    by_name = {verdict["name"]: verdict for verdict in data["verdicts"]}
    names = (
        *("row", "rounds", "step ms", "CPU ms", "device ms", "speed", "95 % interval", "samples/s", "data wait"),
        *("peak memory", "launches", "loss distance", "mean", "hits", "verdict"),
    )
    lines = []
    for row in data["rows"]:
        loss = row["loss"]
        verdict = by_name.get(row["judges"] or "")
        lines.append(
            (
                row["name"],
                str(row["rounds"]),
                _number(row["step_ms"], ".1f"),
                _number(row["cpu_ms"], ".1f"),
                _number(row["device_ms"], ".1f"),
                "1" if row["baseline"] else _number((row["ratio"] or {}).get("value"), ".3f"),
                _plain_bounds(row["ratio"]),
                _number(row["samples_per_s"], ".1f"),
                _number(row["data_wait_share"], ".1%"),
                _memory(row["peak_device_bytes"] if row["peak_device_bytes"] is not None else row["peak_host_bytes"]),
                _number(row["launches"], ".0f"),
                _distance(loss, "largest"),
                _distance(loss, "mean"),
                _hits(row),
                "failed" if row["failed"] else verdict["verdict"] if verdict else "",
            )
        )
    kept = [place for place in range(len(names)) if place == 0 or any(line[place] not in ("", "-") for line in lines)]
    return tuple(names[place] for place in kept), [tuple(line[place] for place in kept) for line in lines]


def notes(data: Data) -> list[str]:
    """What a reader must know beside the tables, a sentence each."""
    said = []
    determinism = data.get("determinism")
    if determinism and determinism["steps"]:
        if determinism["first"] is None:
            said.append(f"two runs of the baseline have equal losses in their first {determinism['steps']} steps")
        else:
            said.append(
                f"two runs of the baseline differ from step {determinism['first']} on, by "
                f"{_number(determinism['largest'], '.1e')} at most: this training is not deterministic, so smaller "
                "distances say nothing"
            )
    if data.get("noisy"):
        said.append("the baseline run twice shows a difference: the machine is too noisy, so no group gets 'keep'")
    said += [f"{row['name']}: {row['note']}" for row in data["rows"] if row["note"] and not row["again"]]
    said += [f"{row['name']} failed: {row['failed']}" for row in data["rows"] if row["failed"]]
    if data.get("level") is not None:
        looks = ", ".join(map(str, data["looks"]))
        said.append(
            f"verdicts are drawn after {looks} rounds, each at a level of {data['level']:.3f} shared by the groups; "
            "the intervals shown are those of one group looked at once"
        )
    return [*said, *data["notes"]]


def markdown(data: Data, picture: str | None = None) -> str:
    """The whole report."""
    lines = [f"# Ablation of {data['model']}: {data['strategy']}", ""]
    if picture:
        lines += [f"![what each group is worth]({picture})", ""]
    if data["verdicts"]:
        lines += [*_verdicts_section(data), ""]
    lines += ["## Rows", "", *_rows_section(data), ""]
    lines += ["## Notes", "", *(f"- {note}" for note in notes(data)), "", _where(data), ""]
    return "\n".join(lines)


def section(data: Data) -> str:
    """Verdicts and rows, and where they come from: a part of somebody's page."""
    lines = [f"{title(data)[0].upper()}{title(data)[1:]}.", ""]
    if data["verdicts"]:
        lines += [*_verdicts_section(data), ""]
    return "\n".join([*lines, *_rows_section(data), "", _where(data)])


def _verdicts_section(data: Data) -> list[str]:
    said = f"Gain: how many more steps in the same time with the group than without, by {METRIC[data['metric']]}."
    return [said, "", *_grid(VERDICTS, verdicts(data))]


def _rows_section(data: Data) -> list[str]:
    return ["Speed: of the row, relative to the baseline.", "", *_grid(*rows(data))]


def _where(data: Data) -> str:
    device = data["basis"].get("device") or {}
    versions = data["basis"].get("versions") or {}
    where = [str(device.get("cpu") or ""), f"{device.get('cpus')} CPUs", *device.get("accelerators", ())]
    at_a_time = f", {data['settings']['parallel_jobs']} at a time" if data["settings"]["parallel_jobs"] > 1 else ""
    return (
        f"{data['runs']} runs, {data['seconds'] / 60:.0f} minutes in all{at_a_time}; "
        f"{', '.join(item for item in where if item)}; "
        + ", ".join(f"{name} {version}" for name, version in versions.items())
    )


def _grid(names: Sequence[str], lines: Sequence[Sequence[str]]) -> list[str]:
    table = [names, ["---"] * len(names), *lines]
    return ["| " + " | ".join((cell or "").replace("|", "\\|") for cell in line) + " |" for line in table]


def comma_separated(data: Data) -> str:
    """A line for each row, with raw numbers, then the verdict that it is there for."""
    keys = (
        *("name", "rounds", "step_ms", "cpu_ms", "device_ms", "samples_per_s", "data_wait_share", "peak_host_bytes"),
        *("peak_device_bytes", "launches", "failed"),
    )
    by_name = {verdict["name"]: verdict for verdict in data["verdicts"]}
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    parts = ("value", "low", "high")
    writer.writerow(
        [
            *keys,
            *(f"speed_{part}" for part in parts),
            *("loss_largest", "loss_mean", "groups_on", "judges", "verdict"),
            *(f"gain_{part}" for part in parts),
            *("p_value", "repeats"),
        ]
    )
    for row in data["rows"]:
        verdict = by_name.get(row["judges"] or "") or {}
        ratio, loss, gain = row["ratio"] or {}, row["loss"] or {}, verdict.get("gain") or {}
        cells = [
            *(row[key] for key in keys),
            *(ratio.get(part) for part in parts),
            *(loss.get("largest"), loss.get("mean"), " ".join(row["on"]), row["judges"], verdict.get("verdict")),
            *(gain.get(part) for part in parts),
            *(verdict.get("p_value"), verdict.get("repeats")),
        ]
        writer.writerow(["" if cell is None else cell for cell in cells])
    return stream.getvalue()


def show(data: Data, folder: str, stream: TextIO) -> None:
    """Print verdicts, rows and notes; on a terminal in colour."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(file=stream, width=None if stream.isatty() else 220, highlight=False)
    console.print(Text(title(data), "bold"))
    tables = [rows(data), (VERDICTS, verdicts(data))]
    for names, lines in tables:
        if not lines:
            continue
        table = Table(box=None, pad_edge=False)
        for name in names:
            right = name in {"step ms", "CPU ms", "device ms", "samples/s", "peak memory", "gain", "speed", "rounds"}
            table.add_column(name, justify="right" if right else "left", overflow="fold")
        for line in lines:
            table.add_row(
                *(
                    Text(cell, COLOURS.get(cell, "") if name == "verdict" else "")
                    for name, cell in zip(names, line, strict=True)
                )
            )
        console.print(table)
        console.print()
    for note in notes(data):
        console.print(Text(f"note: {note}"))
    console.print(Text(f"results: {folder}"), soft_wrap=True)


def side_by_side(sweeps: Sequence[tuple[str, Data]], stream: TextIO) -> None:
    """Print several sweeps, a column each: the verdict and the gain of each group."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(file=stream, width=None if stream.isatty() else 220, highlight=False)
    table = Table(box=None, pad_edge=False)
    table.add_column("", overflow="fold")
    for name, _ in sweeps:
        table.add_column(name, overflow="fold")
    facts: list[tuple[str, Callable[[Data], str]]] = [
        ("model", lambda data: str(data["model"])),
        ("strategy", lambda data: str(data["strategy"])),
        ("judged by", lambda data: METRIC[data["metric"]]),
        ("device", lambda data: ", ".join((data["basis"].get("device") or {}).get("accelerators") or ["CPU"])),
        ("torch", lambda data: str((data["basis"].get("versions") or {}).get("torch", "-"))),
    ]
    for name, of in facts:
        table.add_row(name, *(of(data) for _, data in sweeps))
    by_sweep = [{verdict["name"]: verdict for verdict in data["verdicts"]} for _, data in sweeps]
    for name in dict.fromkeys(name for found in by_sweep for name in found):
        cells = [_short(found.get(name)) for found in by_sweep]
        # Where they disagree is what one looks for.
        words = {cell.partition(" ")[0] for cell in cells}
        table.add_row(Text(name, "bold" if len(words) > 1 else ""), *cells)
    console.print(table)


def _short(verdict: Data | None) -> str:
    if verdict is None:
        return "-"
    return f"{verdict['verdict']}  {percent(verdict['gain'])} {bounds(verdict['gain'])}".rstrip()


def percent(gain: Data | None) -> str:
    """A ratio as a gain in percent."""
    return "-" if not gain else f"{100 * (gain['value'] - 1):+.1f} %"


def bounds(gain: Data | None) -> str:
    """The interval of a ratio, in percent."""
    if not gain or gain["low"] is None:
        return "-"
    return f"[{100 * (gain['low'] - 1):+.1f}, {100 * (gain['high'] - 1):+.1f}]"


def _plain_bounds(ratio: Data | None) -> str:
    return "-" if not ratio or ratio["low"] is None else f"[{ratio['low']:.3f}, {ratio['high']:.3f}]"


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _memory(value: float | None) -> str:
    return "-" if value is None else f"{value / 2**20:.0f} MiB"


def _distance(loss: Data | None, name: str) -> str:
    if not loss:
        return "-"
    if loss[name] is None:
        return "infinite"
    return "0" if loss[name] == 0 else f"{loss[name]:.1e}"


def _numerics(found: Data | None) -> str:
    if not found:
        return "-"
    if found["holds"] is None:
        return f"{found['declared']}: not seen"
    return f"{found['declared']}: {'holds' if found['holds'] else 'BROKEN'} ({_distance(found, 'largest')})"


def _hits(row: Data) -> str:
    calls = [f"{id.partition('.')[2]} {row['hits'][id]['calls']}" for id in row["on"] if id in row["hits"]]
    return ", ".join(calls) or "-"
