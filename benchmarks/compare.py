# SPDX-License-Identifier: Apache-2.0
"""Does the training get faster, and does it stay the same training?

    python benchmarks/compare.py [--rounds 5] [--json FILE] [overrides of turbo-train...]

Runs `turbo-train` with its optimizations and with `optimization.enabled=false`, one after the other in every round, in
an order drawn anew for each. Prints each round's ratio of median step times, their mean with Student's 95 % interval
(the unit is the round), and how far apart the losses are at the same seed. Ends with status 1 if the losses are farther
apart than the tolerance, if a group is blocked or failed, or if the ratio is below what `--at-least` asks for.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import turbo_hydra
from turbo_hydra.measure.comparing import LossDistance, Typical, loss_distance, rank_rows, typical_step
from turbo_hydra.measure.rows import StepRow
from turbo_hydra.measure.statistics import ratio_interval

# A run of the default model that is long enough for a median, and does not evaluate.
SHORT = ("model.args.steps=40", "model.args.no-eval=true")
OFF = "optimization.enabled=false"


@dataclass
class Side:
    """One run."""

    rows: list[StepRow]
    step: Typical
    summary: dict[str, int]


def run(overrides: list[str], folder: Path, seconds: float) -> Side:
    """Run turbo-train into `folder`.

    Raises
    ------
    SystemExit
        With the end of its output, if it fails.
    """
    command = [sys.executable, "-m", "turbo_hydra.cli.train", f"hydra.run.dir={folder}", *overrides]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=seconds, check=False)
    if done.returncode != 0:
        raise SystemExit(
            f"{' '.join(command)} ended with status {done.returncode}:\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
        )
    report = json.loads((folder / "turbo" / "report.json").read_text(encoding="utf-8"))
    rows = rank_rows(folder)
    return Side(rows, typical_step(rows), report["summary"])


def environment() -> dict[str, str]:
    """What the numbers depend on."""
    return {
        "machine": platform.machine(),
        "cpus": str(os.cpu_count()),
        "python": platform.python_version(),
        "torch": importlib.metadata.version("torch"),
        "turbo_hydra": turbo_hydra.__version__,
        "omp_num_threads": os.environ.get("OMP_NUM_THREADS", ""),
    }


def arguments() -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0, help="of the order of the sides")
    parser.add_argument("--loss-steps", type=int, default=20, help="how many first steps' losses are compared")
    parser.add_argument("--tolerance", type=float, default=1e-3, help="largest relative distance of losses")
    parser.add_argument("--at-least", type=float, default=None, help="the ratio that must be reached")
    parser.add_argument("--timeout", type=float, default=900, help="seconds that one run may take")
    parser.add_argument("--json", type=Path, default=None, help="a file to append one line to")
    args, overrides = parser.parse_known_args()
    if args.rounds < 1:
        parser.error("--rounds must be 1 or more")
    wrong = [word for word in overrides if word.startswith("-")]
    if wrong:
        parser.error(f"unknown option {wrong[0]}; overrides of turbo-train have the form key=value")
    return args, overrides or list(SHORT)


def judge(baseline: list[Side], fast: list[Side], steps: int) -> tuple[LossDistance, LossDistance]:
    """The largest distance between the sides, and that between runs of the baseline alone."""
    between = [loss_distance(off.rows, on.rows, steps) for off, on in zip(baseline, fast, strict=True)]
    within = [loss_distance(baseline[0].rows, other.rows, steps) for other in baseline[1:]]
    return max(between, key=_size), max(within, key=_size) if within else LossDistance(0, 0.0, None, 0.0, None)


def _size(distance: LossDistance) -> float:
    return distance.largest


def main() -> int:
    args, overrides = arguments()
    order = random.Random(args.seed)
    baseline: list[Side] = []
    fast: list[Side] = []
    with tempfile.TemporaryDirectory(prefix="turbo_hydra_compare_") as folder:
        print(f"turbo-train {' '.join(overrides)}   against the same with {OFF}, {args.rounds} rounds", flush=True)
        for number in range(args.rounds):
            sides = [(fast, overrides, "on"), (baseline, [*overrides, OFF], "off")]
            order.shuffle(sides)
            for runs, words, name in sides:
                runs.append(run(words, Path(folder, f"{number}-{name}"), args.timeout))
            print(
                f"round {number + 1}: off {baseline[-1].step.wall:8.2f} ms   on {fast[-1].step.wall:8.2f} ms   "
                f"ratio {baseline[-1].step.wall / fast[-1].step.wall:.3f}   ({sides[0][2]} first)",
                flush=True,
            )
    interval = ratio_interval([off.step.wall / on.step.wall for off, on in zip(baseline, fast, strict=True)])
    cpu = ratio_interval(
        [
            (off.step.cpu or off.step.wall) / (on.step.cpu or on.step.wall)
            for off, on in zip(baseline, fast, strict=True)
        ]
    )
    between, within = judge(baseline, fast, args.loss_steps)
    summary = fast[0].summary
    print(f"groups: {' '.join(f'{name}={count}' for name, count in summary.items())}")
    print(f"ratio of median step times: {interval.value:.3f}, 95 % interval {interval.low:.3f} to {interval.high:.3f}")
    print(f"ratio of median CPU times of a step: {cpu.value:.3f}, 95 % interval {cpu.low:.3f} to {cpu.high:.3f}")
    print(
        f"losses of the first {between.steps} steps: largest relative distance {between.largest:.2e} "
        f"(tolerance {args.tolerance:.0e}), between runs of the baseline {within.largest:.2e}"
    )
    problems = []
    if between.steps == 0:
        problems.append("the runs have no losses to compare")
    if between.largest > args.tolerance:
        problems.append(f"the losses differ by {between.largest:.2e} at step {between.at}")
    if summary["blocked"] or summary["failed"] or summary["rolled_back"]:
        problems.append("not every group could be applied")
    if args.at_least is not None and interval.value < args.at_least:
        problems.append(f"the ratio {interval.value:.3f} is below {args.at_least}")
    for problem in problems:
        print(f"NOT OK: {problem}")
    if args.json is not None:
        row: dict[str, Any] = {
            "benchmark": "compare",
            "time": time.time(),
            **environment(),
            "overrides": overrides,
            "off": [asdict(side.step) for side in baseline],
            "on": [asdict(side.step) for side in fast],
            "ratio": asdict(interval),
            "cpu_ratio": asdict(cpu),
            "loss_distance": asdict(between),
            "loss_distance_of_baseline": asdict(within),
            "tolerance": args.tolerance,
            "summary": summary,
            "problems": problems,
        }
        with args.json.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
    return int(bool(problems))


if __name__ == "__main__":
    raise SystemExit(main())
