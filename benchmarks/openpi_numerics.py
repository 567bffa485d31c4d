# SPDX-License-Identifier: Apache-2.0
"""How far do OpenPI's groups, each alone and all together, take the losses, against what upstream differs by itself?

    python benchmarks/openpi_numerics.py --repo CHECKOUT [--steps 60] [--batch 8] [--beside 4] [--json FILE] [ROW...]
        [-- overrides of turbo-train...]

Each ROW is a run of OpenPI's own script at full size, at one seed: `all` (what the config has on), a GROUP alone, or
several, A+B; without rows: all, and each group that is on. Runs with optimizations off are made first: `upstream`, and
upstream's own training again with one thing added up in another order (`benchmarks.openpi_start.Order`): `again.sums`
flips `torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction`, `again.products` takes cuBLASLt,
`again.attention` torch's flash kernel in the image encoder, `again.products+attention` both; if rows name some of
these, only those are run. A row holds where its losses are no further from upstream's than the farthest of these, in
the mean and at most. Nothing is timed, so that several runs share the device. The figures are written anew after each.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

from benchmarks.openpi import Row, environment, fake_data, said, settings_of, switched, words_of
from benchmarks.openpi_start import Order
from turbo_hydra.config import OptimizationConfigCatalog, load_catalogs
from turbo_hydra.launch.files import write_json
from turbo_hydra.measure.comparing import LossDistance, loss_distance, rank_rows

# OpenPI's own highest rate, from the first step on: the gates of the action expert, which are closed at first, open,
# and until then no loss depends on cameras and prompt. At four times this rate runs of upstream are percents apart
# after some ten steps, whatever they began to differ by; at forty times the loss jumps to four times its value.
RATE = (
    "+model.args.lr_schedule.warmup_steps=1",
    "+model.args.lr_schedule.peak_lr=2.5e-5",
    "+model.args.lr_schedule.decay_lr=2.5e-5",
)
AGAIN = tuple(f"again.{order}" for order in get_args(Order) if order != "default")


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


def farthest(again: Sequence[LossDistance]) -> LossDistance | None:
    """How far upstream's other runs are from upstream at most; None if they are not of as many steps."""
    if len({one.steps for one in again}) != 1:
        return None
    return LossDistance(again[0].steps, max(one.largest for one in again), None, max(one.mean for one in again), None)


def holds(distance: LossDistance, allowed: LossDistance) -> bool:
    """Whether a row is no further from upstream than upstream itself, over as many steps."""
    return 0 < distance.steps == allowed.steps and distance.mean <= allowed.mean and distance.largest <= allowed.largest


def result(rows: list[Row], args: argparse.Namespace) -> dict[str, Any]:
    """Distances of all rows that have ended."""
    losses, failed = {}, {}
    for row in rows:
        if row.process is None or not row.ended:
            continue
        if row.process.returncode == 0:
            losses[row.name] = rank_rows(row.folder)
        else:
            failed[row.name] = f"status {row.process.returncode}: {said(row)}"
    upstream = losses.get("upstream", [])
    distances = {name: loss_distance(upstream, steps) for name, steps in losses.items() if name != "upstream"}
    allowed = farthest([distances[name] for name in AGAIN if name in distances])
    return {
        "environment": environment(),
        "time": time.strftime("%Y-%m-%d %H:%M"),
        "commit": args.commit,
        "batch": args.batch,
        "masks": args.masks,
        "rate": RATE,
        "allowed": None if allowed is None else {"mean": allowed.mean, "largest": allowed.largest},
        "rows": {
            name: {**asdict(distance), "holds": allowed is not None and holds(distance, allowed)}
            for name, distance in distances.items()
        },
        "losses": {name: [step.loss for step in steps] for name, steps in losses.items()},
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
    parser.add_argument("--masks", default="libero", choices=("all_valid", "libero"))
    parser.add_argument("--beside", type=int, default=4, help="how many runs share the device")
    parser.add_argument("--seconds", type=float, default=560, help="after which whatever runs is ended")
    parser.add_argument("--folder", type=Path, default=Path("outputs", "openpi_numerics"))
    parser.add_argument("--commit", default="", help="of turbo_hydra and of OpenPI, for the record")
    parser.add_argument("--json", type=Path, default=None)
    args = parser.parse_args(words)
    again = [name for name in args.rows if name in AGAIN] or AGAIN
    named = [name for name in args.rows if name not in AGAIN] or ["all", *groups()]
    names = ["upstream", *again, *named]
    rows = [
        Row(
            name,
            args.folder / name,
            settings_of(
                args.repo,
                args.folder / "checkpoints" / name,
                *overrides(name, args.masks),
                *RATE,
                f"model.args.batch_size={args.batch}",
                f"measure.stop_after={args.steps}",
                *more,
            ),
        )
        for name in names
    ]

    def tell(row: Row) -> None:
        print(f"{row.name}: status {row.process.returncode if row.process else None}", flush=True)
        if args.json:
            write_json(args.json, result(rows, args))

    run(rows, args.beside, time.time() + args.seconds, tell)
    found = result(rows, args)
    print("| row | steps | mean | largest | first difference | holds |\n|---|---|---|---|---|---|")
    for name, row in found["rows"].items():
        print(
            f"| {name} | {row['steps']} | {row['mean']:.2e} | {row['largest']:.2e} | {row['first']} | {row['holds']} |"
        )
    for name, why in found["failed"].items():
        print(f"{name} has failed: {why}")
    missing = [name for name in names if name != "upstream" and name not in found["rows"]]
    return int(bool(missing) or not all(row["holds"] for row in found["rows"].values()))


if __name__ == "__main__":
    raise SystemExit(main())
