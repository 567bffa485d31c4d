# SPDX-License-Identifier: Apache-2.0
"""What are the groups worth in BEVFormer's encoder and decoder alone, at real size?

    python benchmarks/bevformer.py --repo CHECKOUT [--size tiny] [--rounds 8] [--device cpu] [--json FILE] [ROW...]

Each ROW is a process of its own that applies its groups with `turbo_hydra.apply`: `none`, `all` (what the config has
on), `GROUP` (that one with what it depends on, alone), `-GROUP` (all but that one and what depends on it) or `+GROUP`
(one that is off in the config, in addition). Without rows: none, all, and each group alone. `again` is `none` once
more: what two processes differ by. `operator` is `none` with mmcv's own operator, which `--operator` names: a library
of `ms_deform_attn_forward` and `_backward`, as `benchmarks/bevformer_operator.py` builds it of mmcv's sources. The
processes take turns, in random order in each round, one at a time, and each turn is one forward and backward of each
part, on the same random inputs in all of them:

| encoder | from camera features and the last BEV map to the next one |
| history | the same in evaluation, without gradients, as upstream makes the maps of older frames |
| decoder | from the BEV map to queries and boxes |
| loss | from scores and boxes to the loss |
| whole | with `--whole`: a training step of the detector, from the images of all frames to clip and AdamW |

The clock is the CPU time of the thread, or on a device its own events; ratios are of `none` to a row within a round.
Besides, each row says how far its results and gradients are from those of `none`, what its tensors take at most, and
how often the host waits, by a profiler's trace; on a device what took longest there, and the attention's kernel is
timed beside mmcv's operator where that is built. Two processes on a CPU that do the same differ by 10 % for as long as
they live: with `--anew` each round has other ones, and the intervals hold that. On a device rows without
`bevformer.msda` take mmcv's PyTorch path, unless `--baseline extension` says otherwise. All rows are in memory at once;
on a device only what they keep is, between turns. A row that fails is named and left out; the file is written anew
after each round.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import turbo_hydra
from turbo_hydra.launch.files import write_json
from turbo_hydra.measure.statistics import median, ratio_interval

ROOT = Path(__file__).resolve().parents[1]


class Failed(Exception):
    """A row that cannot be measured any further."""


class Worker:
    """One process with its groups."""

    def __init__(self, row: str, args: argparse.Namespace) -> None:
        self.row = row
        self._patience = args.patience
        names = ("size", "device", "builder", "baseline", "config", "dropout", "seed", "whole")
        settings = {"row": row, "repo": str(args.repo), **{name: getattr(args, name) for name in names}}
        settings["operator"] = str(args.operator.resolve()) if args.operator else None
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.bevformer_worker", json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )

    def answer(self) -> Any:
        """The next answer; the first comes unasked, when the process is ready."""
        assert self._process.stdout is not None
        timer = threading.Timer(self._patience, self._process.kill)
        timer.start()
        try:
            for line in self._process.stdout:  # what the libraries print goes by
                if line.startswith("{"):
                    found = json.loads(line)
                    if "error" in found:
                        raise Failed(found["error"])
                    return found
        finally:
            timer.cancel()
        raise Failed(f"its process has ended with status {self._process.wait()}")

    def ask(self, what: str) -> Any:
        """Have it do something: `turn`, `keep FILE`, `compare FILE`, or another name in the worker's `main`."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(what + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise Failed(f"its process has ended with status {self._process.wait()}") from None
        return self.answer()

    def end(self) -> None:
        """Have the process gone."""
        self._process.kill()
        self._process.communicate()


class Measurement:
    """Rows, and what is known of them so far."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.failed: dict[str, str] = {}
        self.workers: dict[str, Worker] = {}
        self.turns: dict[str, dict[int, dict[str, float]]] = {}
        self.found: dict[str, dict[str, Any]] = {}
        self.operators: dict[str, Any] = {}
        self.about: dict[str, Any] = {}

    def begin(self) -> None:
        """Start all processes at once, and wait for each."""
        self.workers["none"] = Worker("none", self.args)
        rows = self.args.rows
        if not rows:
            began = self._tell("none", Worker.answer)
            rows = ["all", *(["operator"] if self.args.operator else []), *began["groups"]]
        else:
            began = None
        self.workers |= {row: Worker(row, self.args) for row in rows if row != "none"}
        began = began or self._tell("none", Worker.answer)
        for row in [row for row in self.workers if row != "none"]:
            self._tell(row, Worker.answer)
        self.about = {
            "size": self.args.size,
            "device": began["device"],
            "baseline": self.args.baseline,
            "machine": platform.machine(),
            "versions": {**began["versions"], "turbo_hydra": turbo_hydra.__version__},
            "clock": "device events" if self.args.device != "cpu" else "CPU time of the thread",
        }

    def _tell(self, row: str, what: str | Callable[[Worker], Any]) -> Any:
        """The row's answer; None where it fails, after which it is not asked again."""
        worker = self.workers[row]
        try:
            return worker.ask(what) if isinstance(what, str) else what(worker)
        except Failed as error:
            worker.end()
            del self.workers[row]
            self.failed[row] = str(error)
            print(f"'{row}' has failed: {error}", file=sys.stderr)
            if row == "none":
                raise SystemExit("without the row 'none' there is nothing to compare with") from None
            return None

    def compare(self) -> None:
        """A first turn of each row, which may compile, then its difference from `none`."""
        with tempfile.TemporaryDirectory() as folder:
            file = f"{folder}/none.pt"
            for row in list(self.workers):  # `none` is the first
                if self._tell(row, "turn") is None:
                    continue
                self.turns[row], self.found[row] = {}, {}
                if row == "none":
                    self._tell(row, f"keep {file}")
                else:
                    self._note(row, "difference", f"compare {file}")

    def _note(self, row: str, name: str, what: str) -> None:
        answer = self._tell(row, what)
        if answer is not None:
            self.found[row][name] = answer

    def measure(self) -> None:
        """The rounds, as many as there is time for."""
        order = random.Random(self.args.seed)
        start = time.monotonic()
        for number in range(self.args.rounds):
            if number > 1 and self.args.minutes and time.monotonic() - start > 60 * self.args.minutes:
                break
            if number and self.args.anew:
                self.start_anew(order.sample(list(self.workers), len(self.workers)))
            for row in order.sample(list(self.workers), len(self.workers)):
                answer = self._tell(row, "turn")
                if answer is not None:
                    self.turns[row][number] = answer["ms"]
            self.write()

    def start_anew(self, rows: Sequence[str]) -> None:
        """End all processes and start others, in this order; each has had a first turn then."""
        self.end()
        for row in rows:
            self.workers[row] = Worker(row, self.args)
            if self._tell(row, Worker.answer) is not None:
                self._tell(row, "turn")

    def look(self) -> None:
        """Memory, waits, the longest kernels, and what the report has counted."""
        for name in () if self.args.brief else ("memory", "trace", "profile"):
            for row in list(self.workers):
                self._note(row, name, name)
                self.write()
        if self.args.device != "cpu":
            # The kernel must not stand where mmcv's operator is looked for.
            row = "operator" if "operator" in self.workers else "none"
            self.operators = self._tell(row, "operators") or {}
        for row in list(self.workers):
            self.found[row] |= self._tell(row, "end") or {}
        self.write()

    def end(self) -> None:
        """Have all processes gone."""
        for worker in self.workers.values():
            worker.end()

    def parts(self, row: str) -> tuple[str, ...]:
        """What the row's turns have measured, and the step that is made up of it."""
        turns = list(self.turns[row].values())
        return (*turns[0], "step") if turns else ()

    def result(self) -> dict[str, Any]:
        """All figures."""
        base = self.turns["none"]
        rows = {}
        for row, turns in self.turns.items():
            common = sorted(base.keys() & turns.keys())
            rows[row] = {
                "ms": {part: round(median([_ms(turns[at], part) for at in common]), 3) for part in self.parts(row)},
                "times_as_fast": {
                    part: _ratio([(base[at], turns[at]) for at in common], part) for part in self.parts(row)
                },
                "turns": [turns[at] for at in common],
                "distance": max([kind["value"] for kind in self.found[row].get("difference", {}).values()], default=0),
                **self.found[row],
            }
        return {
            "about": {**self.about, "rounds": len(base)},
            "rows": rows,
            "failed": self.failed,
            "operators": self.operators,
        }

    def write(self) -> None:
        """Put what is known so far into the file."""
        if self.args.json:
            write_json(self.args.json, self.result())


def _ms(turn: dict[str, float], part: str) -> float:
    """Milliseconds of a part in a turn; `step` is one of each part of the head but three histories, as upstream's."""
    if part != "step":
        return turn[part]
    return turn["encoder"] + 3 * turn["history"] + turn["decoder"] + turn["loss"]


def _ratio(pairs: list[tuple[dict[str, float], dict[str, float]]], part: str) -> list[float] | None:
    """How many times as fast, and its 95 % interval."""
    if len(pairs) < 2:
        return None
    interval = ratio_interval([_ms(one, part) / _ms(other, part) for one, other in pairs])
    return [round(value, 4) for value in (interval.value, interval.low, interval.high)]


def table(result: dict[str, Any]) -> str:
    """Markdown."""
    parts = list(result["rows"]["none"]["ms"])
    kinds = ("results", "gradients", *(["whole"] if "whole" in parts else []))
    lines = ["| row | " + " | ".join((*parts, "memory", *kinds)) + " |", "|---" * (len(parts) + len(kinds) + 2) + "|"]
    for row, figures in result["rows"].items():
        cells = []
        for part in parts:
            ratio = figures["times_as_fast"].get(part)
            if row == "none":
                cells.append(f"{figures['ms'][part]:.1f} ms")
            else:
                cells.append("{:.2f} [{:.2f}, {:.2f}]".format(*ratio) if ratio else "")
        cells.append(" ".join(f"{value:.0f}" for value in figures.get("memory", {}).values()))
        difference = figures.get("difference", {})
        cells += [f"{difference[kind]['value']:.1e}" if kind in difference else "" for kind in kinds]
        lines.append(f"| {row} | " + " | ".join(cells) + " |")
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
    parser.add_argument("--builder", default="benchmarks.bevformer_parts:upstream", help="what makes the model")
    parser.add_argument("--no-dropout", dest="dropout", action="store_false", help="to compare what draws otherwise")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--operator", type=Path, help="a library of mmcv's operator, for the row 'operator'")
    parser.add_argument(
        "--patience", type=float, default=3600, help="seconds after which a row that says nothing fails"
    )
    parser.add_argument("--anew", action="store_true", help="start the processes anew for each round, in another order")
    parser.add_argument("--whole", action="store_true", help="measure the whole detector's training step besides")
    parser.add_argument("--brief", action="store_true", help="times and differences, neither memory nor traces")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args(arguments)
    args.repo = args.repo.resolve()
    measurement = Measurement(args)
    try:
        measurement.begin()
        measurement.compare()
        measurement.measure()
        measurement.look()
    finally:
        measurement.end()
    result = measurement.result()
    print(table(result))
    waits = {row: figures["trace"] for row, figures in result["rows"].items() if "trace" in figures}
    print(json.dumps({"waits": waits, "operators": result["operators"], "failed": result["failed"]}, indent=1))
    if result["failed"]:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
