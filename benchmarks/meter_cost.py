# SPDX-License-Identifier: Apache-2.0
"""What metering costs: the same training loop with and without a meter, in turn, in one process.

    python benchmarks/meter_cost.py [--rounds 12] [--json FILE]

Two loops: one whose step is next to nothing, which gives the cost in microseconds, and a small transformer, which gives
the cost as a share of a step. Sides alternate in blocks, their order drawn anew for each round; the unit of the
statistics is the round. The clock is the CPU time of the training thread, which other processes on the machine do not
run up; the meter has no thread of its own.
"""

from __future__ import annotations

import argparse
import importlib
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from turbo_hydra.engine.apply import Engine
from turbo_hydra.engine.plan import prepare
from turbo_hydra.engine.registry import Registry
from turbo_hydra.engine.selection import Selection
from turbo_hydra.measure.meter import install
from turbo_hydra.measure.statistics import Interval, ratio_interval, student_quantile

# Four times as often as in a run, so that blocks of half a second have their share of writing.
SETTINGS = {"progress": "off", "interval": 0.5}
LIMIT = 1.01
Step = Callable[[], None]


@dataclass
class Result:
    """One loop's numbers; times in microseconds of CPU a step."""

    loop: str
    rounds: int
    step_us: float
    cost_us: float
    cost_us_low: float
    cost_us_high: float
    ratio: float
    ratio_low: float
    ratio_high: float


def tiny_step() -> Step:
    """A step that is nearly all Python: one parameter, one loader, one clip."""
    parameter = nn.Parameter(torch.ones(8))
    optimizer = torch.optim.SGD([parameter], 1e-9)
    return _loop([parameter], optimizer, lambda batch: (parameter * batch).sum(), torch.ones(8))


def transformer_step() -> Step:
    """Four layers of width 128 on 16 sequences of 64: about 80 ms on one core."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(128, 4, 512, dropout=0.0, batch_first=True)
    model = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(parameters, 1e-4)
    return _loop(parameters, optimizer, lambda batch: model(batch).square().mean(), torch.randn(16, 64, 128))


def _loop(
    parameters: list[nn.Parameter],
    optimizer: torch.optim.Optimizer,
    loss_of: Callable[[torch.Tensor], torch.Tensor],
    batch: torch.Tensor,
) -> Step:
    class Same(torch.utils.data.IterableDataset[torch.Tensor]):
        def __iter__(self) -> Any:
            while True:
                yield batch

    batches = iter(torch.utils.data.DataLoader(Same(), batch_size=None))

    def step() -> None:
        loss = loss_of(next(batches))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()

    return step


def block(step: Step, steps: int) -> float:
    """Median CPU time of a step, in seconds."""
    times = []
    for _ in range(steps):
        start = time.thread_time_ns()
        step()
        times.append(time.thread_time_ns() - start)
    return statistics.median(times) / 1e9


def metered_block(step: Step, steps: int, folder: Path) -> float:
    """The same with a meter."""
    meter = install(SETTINGS, {"batch": 16}, folder)
    if meter is None:
        raise SystemExit("the meter was not installed")
    try:
        return block(step, steps)
    finally:
        meter.close()
        summary = meter.summary()
        if summary["count"] != steps or summary["last_loss"] is None or summary["last_grad_norm"] is None:
            raise SystemExit(f"the meter did not see what it is paid for: {summary}")


def compare(loop: str, step: Step, steps: int, rounds: int, order: random.Random) -> Result:
    """Run both sides in every round."""
    block(step, steps)
    plain, metered = [], []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(rounds):
            sides = ["plain", "metered"]
            order.shuffle(sides)
            for side in sides:
                if side == "plain":
                    plain.append(block(step, steps))
                else:
                    metered.append(metered_block(step, steps, Path(folder, str(number))))
    ratio = ratio_interval([m / p for m, p in zip(metered, plain, strict=True)])
    cost = _mean([1e6 * (m - p) for m, p in zip(metered, plain, strict=True)])
    return Result(
        loop,
        rounds,
        1e6 * statistics.median(plain),
        cost.value,
        cost.low,
        cost.high,
        ratio.value,
        ratio.low,
        ratio.high,
    )


def _mean(values: list[float]) -> Interval:
    mean = statistics.fmean(values)
    if len(values) < 2:
        return Interval(mean, float("-inf"), float("inf"), len(values))
    half = student_quantile(0.975, len(values) - 1) * statistics.stdev(values) / len(values) ** 0.5
    return Interval(mean, mean - half, mean + half, len(values))


def observe() -> None:
    """Put the meter's observers in place, as a rank does."""
    registry = Registry()
    registry.load("turbo_hydra.measure.catalog")
    report = Engine(prepare(registry, Selection()), run_id="meter_cost", describe={}).apply()
    # Observers are listed in the report and not counted in its summary.
    statuses = [entry["status"] for entry in report.to_dict()["execution"]]
    if statuses != ["applied"]:
        raise SystemExit(f"the observers are not applied: {statuses}")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0, help="of the order of the sides")
    parser.add_argument("--json", type=Path, default=None, help="a file to append one line to")
    args = parser.parse_args()
    torch.set_num_threads(1)
    observe()
    order = random.Random(args.seed)
    results = [
        compare("tiny", tiny_step(), 2000, args.rounds, order),
        compare("transformer", transformer_step(), 8, 2 * args.rounds, order),
    ]
    for result in results:
        print(
            f"{result.loop:12} step {result.step_us:9.1f} us   meter {result.cost_us:6.1f} us "
            f"[{result.cost_us_low:.1f}, {result.cost_us_high:.1f}]   "
            f"ratio {result.ratio:.4f} [{result.ratio_low:.4f}, {result.ratio_high:.4f}]   {result.rounds} rounds"
        )
    share = results[0].cost_us / results[1].step_us
    print(f"the tiny loop's cost is {100 * share:.3f} % of the transformer's step (limit {100 * (LIMIT - 1):.0f} %)")
    if args.json is not None:
        row = {
            "benchmark": "meter_cost",
            "time": time.time(),
            "python": sys.version.split()[0],
            "torch": importlib.import_module("torch").__version__,
            "results": [asdict(result) for result in results],
        }
        with args.json.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
    return int(share > LIMIT - 1)


if __name__ == "__main__":
    raise SystemExit(main())
