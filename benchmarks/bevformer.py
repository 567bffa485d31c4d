# SPDX-License-Identifier: Apache-2.0
"""What are the groups worth in BEVFormer's encoder and decoder alone, at real size?

    python benchmarks/bevformer.py --repo CHECKOUT [--size tiny] [--rounds 8] [--device cpu] [--json FILE] [ROW...]

Each ROW is a process of its own that applies its groups with `turbo_hydra.apply`: `none`, `all` (what the config has
on), `GROUP` (that one alone), `-GROUP` (all but that one) or `+GROUP` (one that is off in the config, in addition).
Without rows: none, all, and each group alone. The processes take turns, in random order in each round, one at a time,
and each turn is one forward and backward of each part, on the same random inputs in all of them:

| encoder | from camera features and the last BEV map to the next one |
| history | the same in evaluation, without gradients, as upstream makes the maps of older frames |
| decoder | from the BEV map to queries and boxes |
| loss | from scores and boxes to the loss |

The clock is the CPU time of the thread, or on a device its own events; ratios are of `none` to a row within a round.
On a device host syncs are counted in a profiler's trace, and the attention's kernel is timed beside mmcv's operator
where that is built. There rows without `bevformer.msda` take mmcv's PyTorch path, unless `--baseline extension` says
otherwise. (What is for a device has not been run on one yet.) All rows are in memory at once.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import platform
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from turbo_hydra.measure.statistics import median, ratio_interval

ROOT = Path(__file__).resolve().parents[1]
PARTS = ("encoder", "history", "decoder", "loss")


class Worker:
    """One process with its groups."""

    def __init__(self, row: str, args: argparse.Namespace) -> None:
        self.row = row
        settings = {
            "row": row,
            "repo": str(args.repo),
            "size": args.size,
            "device": args.device,
            "builder": args.builder,
            "baseline": args.baseline,
            "config": args.config,
            "seed": args.seed,
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.bevformer_worker", json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        self.begun: dict[str, Any] = self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        for line in self._process.stdout:  # what the libraries print goes by
            if line.startswith("{"):
                return json.loads(line)
        raise SystemExit(f"the process of '{self.row}' has ended with status {self._process.wait()}")

    def ask(self, what: str) -> Any:
        """Have it do something: `turn`, `trace`, `operators` or `end`."""
        assert self._process.stdin is not None
        self._process.stdin.write(what + "\n")
        self._process.stdin.flush()
        return self._answer()

    def end(self) -> Any:
        """Its last answer: the counts of its report."""
        answer = self.ask("end")
        self._process.wait()
        return answer


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """All figures."""
    first = Worker("none", args)
    rows = args.rows or ["all", *first.begun["groups"]]
    workers = [first, *(Worker(row, args) for row in rows if row != "none")]
    for worker in workers:
        worker.ask("turn")
    order = random.Random(args.seed)
    turns: dict[str, list[dict[str, float]]] = {worker.row: [] for worker in workers}
    results: dict[str, Any] = {}
    start = time.monotonic()
    for number in range(args.rounds):
        if number > 1 and args.minutes and time.monotonic() - start > 60 * args.minutes:
            break
        for worker in order.sample(workers, len(workers)):
            answer = worker.ask("turn")
            turns[worker.row].append(answer["ms"])
            results.setdefault(worker.row, answer["sums"])
    on_device = args.device != "cpu"
    traces = {worker.row: worker.ask("trace") for worker in workers} if on_device else {}
    operators = workers[-1].ask("operators") if on_device else {}
    ends = {worker.row: worker.end() for worker in workers}
    return {
        "about": {
            "size": args.size,
            "device": first.begun["device"],
            "rounds": len(turns["none"]),
            "machine": platform.machine(),
            "versions": {name: importlib.metadata.version(name) for name in ("torch", "turbo_hydra")},
            "clock": "device events" if on_device else "CPU time of the thread",
        },
        "rows": {
            row: {
                "ms": {part: median([turn[part] for turn in turns[row]]) for part in PARTS},
                "times_as_fast": {part: _ratio(turns["none"], turns[row], part) for part in (*PARTS, "step")},
                "distance": _distance(results["none"], results[row]),
                "applied": ends[row],
            }
            for row in turns
        },
        "syncs": traces,
        "operators": operators,
    }


def _ratio(base: list[dict[str, float]], turns: list[dict[str, float]], part: str) -> list[float]:
    """How many times as fast, and its 95 % interval; `step` is one of each part but three histories, as upstream's."""

    def total(turn: dict[str, float]) -> float:
        return turn["encoder"] + 3 * turn["history"] + turn["decoder"] + turn["loss"] if part == "step" else turn[part]

    interval = ratio_interval([total(one) / total(other) for one, other in zip(base, turns, strict=True)])
    return [round(value, 4) for value in (interval.value, interval.low, interval.high)]


def _distance(expected: dict[str, float], found: dict[str, float]) -> float:
    """The largest relative difference of sums over results and gradients."""
    return max(abs(found[name] - value) / max(abs(value), 1e-9) for name, value in expected.items())


def table(result: dict[str, Any]) -> str:
    """Markdown."""
    parts = (*PARTS, "step")
    lines = ["| row | " + " | ".join(parts) + " | distance |", "|---" * (len(parts) + 2) + "|"]
    for row, figures in result["rows"].items():
        cells = []
        for part in parts:
            value, low, high = figures["times_as_fast"][part]
            of = f"{figures['ms'][part]:.1f} ms" if row == "none" and part != "step" else ""
            cells.append(of if row == "none" else f"{value:.2f} [{low:.2f}, {high:.2f}]")
        lines.append(f"| {row} | " + " | ".join(cells) + f" | {figures['distance']:.1e} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print a table, write the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("rows", nargs="*", metavar="ROW")
    parser.add_argument("--repo", type=Path, required=True, help="a checkout of BEVFormer")
    parser.add_argument("--size", default="tiny", choices=("tiny", "small", "base"))
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--minutes", type=float, help="begin no further round after so many")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--baseline", default="pytorch", choices=("pytorch", "extension"))
    parser.add_argument("--config", default="bevformer", help="an optimization config: a model's name or a file")
    parser.add_argument("--builder", default="benchmarks.bevformer_worker:upstream", help="what makes the model")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args(arguments)
    args.repo = args.repo.resolve()
    result = measure(args)
    print(table(result))
    for name in ("syncs", "operators"):
        if result[name]:
            print(json.dumps({name: result[name]}, indent=1))
    if args.json:
        args.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
