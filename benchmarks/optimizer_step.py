# SPDX-License-Identifier: Apache-2.0
"""What one step of an optimizer costs as the script makes it and as `torch.fused_adamw` makes it, in turn.

    python benchmarks/optimizer_step.py [--rounds 12]

The parameters are 100 matrices of 64x128 and 100 vectors of 128 in float32 on the CPU, about those of the embedded
example. The unit of the statistics is the round; the clock is the CPU time of the thread.
"""

from __future__ import annotations

import argparse
import random
import time
from typing import Any

import turbo_hydra

turbo_hydra.apply()

import torch  # noqa: E402  the engine comes first

from turbo_hydra.catalogs.shared.sgd_steps import choose_each_step  # noqa: E402
from turbo_hydra.measure.statistics import median, ratio_interval  # noqa: E402

STEPS = 50


def make(name: str, **settings: Any) -> torch.optim.Optimizer:
    """An optimizer over parameters that have gradients."""
    torch.manual_seed(0)
    parameters = [torch.randn(shape, requires_grad=True) for _ in range(100) for shape in ((64, 128), (128,))]
    for item in parameters:
        item.grad = torch.randn_like(item)
    kind: Any = getattr(torch.optim, name)
    made: torch.optim.Optimizer = kind(parameters, lr=1e-3, **settings)
    return made


def step_us(optimizer: torch.optim.Optimizer) -> float:
    """Median CPU microseconds of a step."""
    times = []
    for _ in range(STEPS):
        start = time.thread_time_ns()
        optimizer.step()
        times.append((time.thread_time_ns() - start) / 1e3)
    return median(times)


def main() -> None:
    """Print a line an optimizer."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0, help="of the order of the sides")
    args = parser.parse_args()
    torch.set_num_threads(1)
    order = random.Random(args.seed)
    for name in ("AdamW", "Adam", "SGD"):
        # What the script chose stays as it is: `foreach=False` is what it gets on a CPU without choosing.
        fused = make(name)
        if name == "SGD":  # an option of the group, not its default
            choose_each_step(fused)
        sides = {"plain": make(name, foreach=False), "fused": fused}
        times: dict[str, list[float]] = {"plain": [], "fused": []}
        for optimizer in sides.values():
            step_us(optimizer)
        for _ in range(args.rounds):
            for side in order.sample(list(sides), 2):
                times[side].append(step_us(sides[side]))
        ratio = ratio_interval([plain / fused for plain, fused in zip(times["plain"], times["fused"], strict=True)])
        print(
            f"{name:6} plain {median(times['plain']):8.1f} us   fused {median(times['fused']):8.1f} us   "
            f"{ratio.value:.2f} times as fast [{ratio.low:.2f}, {ratio.high:.2f}]   {args.rounds} rounds"
        )


if __name__ == "__main__":
    main()
