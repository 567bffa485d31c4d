# SPDX-License-Identifier: Apache-2.0
"""What starting by turbo-train costs: from the command to the script, against plain torchrun, in turn.

    python benchmarks/launch.py [--rounds 5] [--ranks 1 2 8] [--json FILE]

The script notes when its first line ran, and when `import torch` behind it was done: a rank that applies groups has
imported torch by then, and a script that trains imports it anyway, so the second moment is the one to compare. A run
has begun when the last of its ranks has. Sides alternate, their order drawn anew for each round; each round gives one
ratio, and the table has their mean with its 95 % interval. Beside the wall clock stands the CPU time of all processes
until their end, which other work on the machine changes less.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from turbo_hydra.measure.statistics import student_quantile

ROOT = Path(__file__).resolve().parents[1]
LIMIT = 1.25
SCRIPT = """\
import time; first = time.time()
import os, torch
open(f"{os.environ['BEGUN']}/{os.environ['RANK']}", "w").write(f"{first} {time.time()}")
"""
IMPORTED = "import turbo_hydra.api, turbo_hydra.config, turbo_hydra.launch.rank_main"
SIDES = ("torchrun", "bare", "turbo-train")


@dataclass
class Start:
    """One start: seconds to the first line, to torch there, and of CPU."""

    first: float
    torch: float
    cpu: float


@dataclass
class Row:
    """A number of ranks: medians in seconds, and the ratio to torchrun plus the engine's import."""

    ranks: int
    side: str
    rounds: int
    first_s: float
    torch_s: float
    cpu_s: float
    ratio: float
    ratio_low: float
    ratio_high: float
    cpu_ratio: float


def command(side: str, script: Path, ranks: int, output: Path) -> list[str]:
    """Return the command of a side: `bare` is turbo-train with no group and no meter."""
    if side == "torchrun":
        return [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={ranks}", str(script)]
    off = ["measure=off", "optimization.enabled=false"] if side == "bare" else []
    return [
        *(
            sys.executable,
            "-m",
            "turbo_hydra.cli.train",
            "model=custom",
            f"model.entry={script}",
            "optimization=common",
        ),
        *(f"runtime.ranks={ranks}", f"hydra.run.dir={output}", "runtime.logs.tee=none", *off),
    ]


def start(side: str, ranks: int, folder: Path) -> Start:
    """Run a side once."""
    script, begun = folder / "script.py", folder / "begun"
    script.write_text(SCRIPT)
    begun.mkdir()
    environment = {**os.environ, "BEGUN": str(begun), "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    at = time.time()
    subprocess.run(
        command(side, script, ranks, folder / "out"), env=environment, cwd=folder, check=True, capture_output=True
    )
    now = resource.getrusage(resource.RUSAGE_CHILDREN)
    told = [[float(word) for word in path.read_text().split()] for path in begun.iterdir()]
    if len(told) != ranks:
        raise RuntimeError(f"{len(told)} of {ranks} ranks began")
    return Start(
        max(first for first, _ in told) - at,
        max(imported for _, imported in told) - at,
        now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime,
    )


def importing() -> tuple[float, float]:
    """Return seconds and CPU seconds that importing the engine adds to an interpreter's start."""
    found = {}
    for name, code in (("plain", "pass"), ("ours", IMPORTED)):
        walls, cpus = [], []
        for _ in range(5):
            used, at = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
            subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
            walls.append(time.perf_counter() - at)
            now = resource.getrusage(resource.RUSAGE_CHILDREN)
            cpus.append(now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime)
        found[name] = (statistics.median(walls), statistics.median(cpus))
    return found["ours"][0] - found["plain"][0], found["ours"][1] - found["plain"][1]


def rows(ranks: int, rounds: int, seed: int) -> list[Row]:
    """Measure the sides with one number of ranks."""
    wall, cpu = importing()
    draw = random.Random(seed)
    found: dict[str, list[Start]] = {side: [] for side in SIDES}
    for number in range(rounds):
        for side in draw.sample(SIDES, len(SIDES)):
            with tempfile.TemporaryDirectory() as folder:
                found[side].append(start(side, ranks, Path(folder)))
            sys.stderr.write(f"{ranks} ranks, round {number + 1}: {side} {found[side][-1].torch:.2f} s\n")
    made = []
    for side in SIDES:
        pairs = list(zip(found[side], found["torchrun"], strict=True))
        extra, extra_cpu = (wall, cpu * ranks) if side != "torchrun" else (0.0, 0.0)
        ratios = [ours.torch / (theirs.torch + extra) for ours, theirs in pairs]
        cpus = [ours.cpu / (theirs.cpu + extra_cpu) for ours, theirs in pairs]
        mean = statistics.mean(ratios)
        half = 0.0
        if rounds > 1:
            half = student_quantile(0.975, rounds - 1) * statistics.stdev(ratios) / rounds**0.5
        made.append(
            Row(
                ranks,
                side,
                rounds,
                statistics.median(item.first for item in found[side]),
                statistics.median(item.torch for item in found[side]),
                statistics.median(item.cpu for item in found[side]),
                mean,
                mean - half,
                mean + half,
                statistics.mean(cpus),
            )
        )
    return made


def main() -> int:
    """Print the table; returns 1 where a bare start is dearer than the goal allows."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 8])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    made = [row for ranks in chosen.ranks for row in rows(ranks, chosen.rounds, chosen.seed)]
    print("| ranks | side | first line (s) | torch imported (s) | CPU (s) | ratio | 95 % | CPU ratio |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for row in made:
        spread = "" if row.side == "torchrun" else f"{row.ratio_low:.2f} to {row.ratio_high:.2f}"
        print(
            f"| {row.ranks} | {row.side} | {row.first_s:.2f} | {row.torch_s:.2f} | {row.cpu_s:.2f} "
            f"| {row.ratio:.2f} | {spread} | {row.cpu_ratio:.2f} |"
        )
    if chosen.json:
        chosen.json.write_text(json.dumps([asdict(row) for row in made], indent=1) + "\n")
    return int(any(row.ratio > LIMIT for row in made if row.side == "turbo-train"))


if __name__ == "__main__":
    sys.exit(main())
