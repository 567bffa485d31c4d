# SPDX-License-Identifier: Apache-2.0
"""How far do OpenPI's groups, each alone and all together, take the losses, against what upstream differs by itself?

    python benchmarks/openpi_numerics.py --repo CHECKOUT [--steps 60] [--batch 8] [--seeds 42 43] [--beside 4]
        [--json FILE] [ROW...] [-- overrides of turbo-train...]

Each ROW is a run of OpenPI's own script at full size for each seed: `all` (what the config has on), a GROUP alone, or
several, A+B; without rows: all, and each group that is on. Runs with optimizations off are made first: `upstream`, and
upstream's own training again with one thing added up in another order (`benchmarks.openpi_start.Order`): `again.sums`
flips `torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction`, `again.products` takes cuBLASLt,
`again.attention` torch's flash kernel in the image encoder, `again.products+attention` both; if rows name some of
these, only those are run. A row is compared with upstream's at the same seed, and holds where it is no further from it
than the farthest of these, in the mean and at most, each averaged over the seeds. Nothing is timed, so that several
runs share the device. The figures are written anew after each.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, get_args

from benchmarks.openpi import Row, environment, fake_data, said, settings_of, switched, words_of
from benchmarks.openpi_start import Order
from turbo_hydra.config import OptimizationConfigCatalog, load_catalogs
from turbo_hydra.launch.files import write_json
from turbo_hydra.measure.comparing import LossDistance, loss_distance, rank_rows
from turbo_hydra.measure.rows import StepRow

# OpenPI's own highest rate, from the first step on: the gates of the action expert, which are closed at first, open,
# and until then no loss depends on cameras and prompt. At four times this rate runs of upstream are percents apart
# after some ten steps, whatever they began to differ by; at forty times the loss jumps to four times its value.
RATE = (
    "+model.args.lr_schedule.warmup_steps=1",
    "+model.args.lr_schedule.peak_lr=2.5e-5",
    "+model.args.lr_schedule.decay_lr=2.5e-5",
)
AGAIN = tuple(f"again.{order}" for order in get_args(Order) if order != "default")


@dataclass(frozen=True)
class Distance:
    """How far losses are from upstream's, relative to them."""

    mean: float
    largest: float


def groups() -> list[str]:
    """Groups of the config that are on and change the training's computation."""
    configs = OptimizationConfigCatalog()
    known = configs.load(configs.model_path("openpi"))
    declared = load_catalogs(known).groups
    return [id.partition(".")[2] for id, on in known.groups.items() if on and declared[id].purpose == "optimization"]


def overrides(name: str, masks: str) -> list[str]:
    """Settings of a row."""
    chosen = fake_data(masks)
    if name in ("upstream", *AGAIN):
        chosen.append("optimization.enabled=false")
    elif name != "all":
        chosen += ["optimization=openpi/all_off", *switched(name, True)]
    if name in AGAIN:
        chosen.append(f"+optimization.options.start.on_device.order={name.partition('.')[2]}")
    return chosen


def run(rows: list[Row], beside: int, deadline: float, tell: Any) -> None:
    """Run all rows, some beside each other; what is not done in time is ended."""
    waiting, running = list(rows), list[Row]()
    while waiting or running:
        while waiting and len(running) < beside and time.time() < deadline:
            running.append(waiting.pop(0))
            running[-1].start()
        for row in [row for row in running if row.ended]:
            running.remove(row)
            row.times["ended"] = time.time()
            tell(row)
        if time.time() > deadline:
            for row in running:
                if row.process is not None:
                    row.process.terminate()
            print(f"out of time: {', '.join(row.name for row in [*running, *waiting])}", flush=True)
            return
        time.sleep(0.2)


def averaged(distances: Sequence[LossDistance]) -> Distance:
    """What one row's distances are over the seeds."""
    return Distance(fmean(one.mean for one in distances), fmean(one.largest for one in distances))


def compared(losses: dict[str, dict[int, list[StepRow]]], again: Sequence[str]) -> dict[str, Any]:
    """Each row's distance from upstream, by seed and averaged, and what upstream's own runs allow.

    Parameters
    ----------
    losses : dict
        By row and seed; what has not ended is not there.
    again : sequence of str
        Upstream's own runs. A seed without one of them, or of fewer steps, counts for nothing.
    """
    upstream = losses.get("upstream", {})
    apart = {
        name: {seed: loss_distance(upstream[seed], steps) for seed, steps in runs.items() if seed in upstream}
        for name, runs in losses.items()
        if name != "upstream"
    }

    def whole(name: str, seed: int) -> bool:
        return seed in apart.get(name, {}) and 0 < apart[name][seed].steps == len(upstream[seed])

    told = [seed for seed in upstream if all(whole(name, seed) for name in again)]
    rows = dict[str, dict[str, Any]]()
    for name, runs in apart.items():
        seeds = [seed for seed in told if whole(name, seed)]
        found: dict[str, Any] = {"seeds": {seed: asdict(one) for seed, one in runs.items()}}
        if seeds:
            of_upstream = [averaged([apart[one][seed] for seed in seeds]) for one in again]
            mine = averaged([runs[seed] for seed in seeds])
            allowed = Distance(max(one.mean for one in of_upstream), max(one.largest for one in of_upstream))
            found |= {
                "mean": mine.mean,
                "largest": mine.largest,
                "allowed": asdict(allowed),
                "holds": mine.mean <= allowed.mean and mine.largest <= allowed.largest,
            }
        rows[name] = found
    return rows


def result(rows: list[Row], again: Sequence[str], args: argparse.Namespace) -> dict[str, Any]:
    """Distances of all rows that have ended."""
    losses, failed = dict[str, dict[int, list[StepRow]]](), {}
    for row in rows:
        if row.process is None or not row.ended:
            continue
        name, _, seed = row.name.partition("@")
        if row.process.returncode == 0:
            losses.setdefault(name, {})[int(seed)] = rank_rows(row.folder)
        else:
            failed[row.name] = f"status {row.process.returncode}: {said(row)}"
    return {
        "environment": environment(),
        "time": time.strftime("%Y-%m-%d %H:%M"),
        "commit": args.commit,
        "batch": args.batch,
        "masks": args.masks,
        "rate": RATE,
        "rows": compared(losses, again),
        "losses": {
            name: {seed: [step.loss for step in steps] for seed, steps in of.items()} for name, of in losses.items()
        },
        "failed": failed,
    }


def main() -> int:
    """Run, write, print a table."""
    words, more = words_of(sys.argv[1:])
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("rows", nargs="*")
    parser.add_argument("--repo", type=Path, required=True, help="a checkout of OpenPI")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--seeds", type=int, nargs="+", default=[42], help="OpenPI's own is 42")
    parser.add_argument("--masks", default="libero", choices=("all_valid", "libero"))
    parser.add_argument("--beside", type=int, default=4, help="how many runs share the device")
    parser.add_argument("--seconds", type=float, default=560, help="after which whatever runs is ended")
    parser.add_argument("--folder", type=Path, default=Path("outputs", "openpi_numerics"))
    parser.add_argument("--commit", default="", help="of turbo_hydra and of OpenPI, for the record")
    parser.add_argument("--json", type=Path, default=None)
    args = parser.parse_args(words)
    again = [name for name in args.rows if name in AGAIN] or AGAIN
    named = [name for name in args.rows if name not in AGAIN] or ["all", *groups()]
    rows = [
        Row(
            f"{name}@{seed}",
            args.folder / f"{name}@{seed}",
            settings_of(
                args.repo,
                args.folder / "checkpoints" / f"{name}@{seed}",
                *overrides(name, args.masks),
                *RATE,
                f"model.args.seed={seed}",
                f"model.args.batch_size={args.batch}",
                f"measure.stop_after={args.steps}",
                *more,
            ),
        )
        for seed in args.seeds
        for name in ("upstream", *again, *named)
    ]

    def tell(row: Row) -> None:
        print(f"{row.name}: status {row.process.returncode if row.process else None}", flush=True)
        if args.json:
            write_json(args.json, result(rows, again, args))

    run(rows, args.beside, time.time() + args.seconds, tell)
    found = result(rows, again, args)
    print("| row | seeds | mean | largest | first difference | holds |\n|---|---|---|---|---|---|")
    for name, row in found["rows"].items():
        firsts = [one["first"] for one in row["seeds"].values()]
        if "holds" in row:
            print(f"| {name} | {len(firsts)} | {row['mean']:.2e} | {row['largest']:.2e} | {firsts} | {row['holds']} |")
        else:
            print(f"| {name} | {len(firsts)} | | | {firsts} | not told: a run beside it has not ended |")
    for name, why in found["failed"].items():
        print(f"{name} has failed: {why}")
    return int(
        len(found["rows"]) < len(again) + len(named) or not all(row.get("holds") for row in found["rows"].values())
    )


if __name__ == "__main__":
    raise SystemExit(main())
