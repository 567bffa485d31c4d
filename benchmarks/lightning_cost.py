# SPDX-License-Identifier: Apache-2.0
"""What TurboCallback costs: the same fits under Lightning with and without it, in turn, in one process.

    python benchmarks/lightning_cost.py [--rounds 8] [--json FILE]

Two modules: one whose step is next to nothing, which gives the cost in microseconds, and a small transformer, which
makes a share of it. The callback starts a meter, as it does without turbo-train, and tells a logger every 50 steps, as
Lightning does. The unit of the statistics is the round; the clock is the CPU time of the training thread, from the
first batch's start to the last one's end.
"""

from __future__ import annotations

import argparse
import importlib
import json
import logging
import random
import statistics
import sys
import tempfile
import time
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import turbo_hydra

turbo_hydra.apply()

import lightning.pytorch as pl  # noqa: E402  the engine comes first
import torch  # noqa: E402
from lightning.pytorch.loggers import CSVLogger  # noqa: E402
from torch import Tensor, nn  # noqa: E402

from turbo_hydra.integrations.lightning import TurboCallback  # noqa: E402
from turbo_hydra.measure.statistics import ratio_interval, student_quantile  # noqa: E402

LIMIT = 0.01


@dataclass
class Result:
    """One module's numbers; times in microseconds of CPU a step."""

    module: str
    rounds: int
    step_us: float
    cost_us: float
    cost_us_low: float
    cost_us_high: float
    ratio: float
    ratio_low: float
    ratio_high: float


class Clock(pl.Callback):
    """CPU time of the thread between the first batch and the end of the last."""

    began = ended = 0

    def on_train_batch_start(self, *args: Any) -> None:
        """Begin once."""
        self.began = self.began or time.thread_time_ns()

    def on_train_batch_end(self, *args: Any) -> None:
        """The last call stays."""
        self.ended = time.thread_time_ns()


class Tiny(pl.LightningModule):
    """A step that is nearly all Lightning."""

    def __init__(self) -> None:
        super().__init__()
        self.net: nn.Module = nn.Linear(8, 1)

    def training_step(self, batch: Tensor, index: int) -> Tensor:
        """The loss."""
        loss: Tensor = self.net(batch).square().mean()
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """AdamW."""
        return torch.optim.AdamW(self.parameters(), 1e-4)


class Transformer(Tiny):
    """Four layers of width 128 on 16 sequences of 64: about 80 ms on one core."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(128, 4, 512, dropout=0.0, batch_first=True)
        self.net = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)


MODULES = {"tiny": (Tiny, (1, 8), 400), "transformer": (Transformer, (16, 64, 128), 20)}


def fit(name: str, folder: Path, callbacks: list[Any]) -> float:
    """CPU microseconds a step of one fit."""
    kind, shape, steps = MODULES[name]
    torch.manual_seed(0)
    batches = torch.randn(1, *shape).expand(steps, *shape)
    clock = Clock()
    trainer = pl.Trainer(
        max_epochs=1,
        accelerator="cpu",
        logger=CSVLogger(folder),
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[clock, *callbacks],
    )
    loader: Any = torch.utils.data.DataLoader(batches, batch_size=None)  # type: ignore[arg-type]
    trainer.fit(kind(), loader)
    return (clock.ended - clock.began) / 1e3 / steps


def compare(name: str, rounds: int, order: random.Random) -> Result:
    """Both sides in every round, in an order drawn anew."""
    times: dict[str, list[float]] = {"plain": [], "turbo": []}
    with tempfile.TemporaryDirectory() as folder:
        fit(name, Path(folder), [])
        for _ in range(rounds):
            sides = list(times)
            order.shuffle(sides)
            for side in sides:
                times[side].append(fit(name, Path(folder), [TurboCallback()] if side == "turbo" else []))
    pairs = list(zip(times["turbo"], times["plain"], strict=True))
    ratio = ratio_interval([ours / plain for ours, plain in pairs])
    costs = [ours - plain for ours, plain in pairs]
    half = student_quantile(0.975, len(costs) - 1) * statistics.stdev(costs) / len(costs) ** 0.5
    cost = statistics.fmean(costs)
    step = statistics.median(times["plain"])
    return Result(name, rounds, step, cost, cost - half, cost + half, ratio.value, ratio.low, ratio.high)


def main() -> int:
    """Print both modules' numbers; 1 if the cost is above the limit."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0, help="of the order of the sides")
    parser.add_argument("--json", type=Path, default=None, help="a file to append one line to")
    args = parser.parse_args()
    torch.set_num_threads(1)
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore")
    order = random.Random(args.seed)
    results = [compare(name, args.rounds, order) for name in MODULES]
    for result in results:
        print(
            f"{result.module:12} step {result.step_us:9.1f} us   callback {result.cost_us:7.1f} us "
            f"[{result.cost_us_low:.1f}, {result.cost_us_high:.1f}]   "
            f"ratio {result.ratio:.4f} [{result.ratio_low:.4f}, {result.ratio_high:.4f}]   {result.rounds} rounds"
        )
    share = results[0].cost_us / results[1].step_us
    print(f"the tiny module's cost is {100 * share:.3f} % of the transformer's step (limit {100 * LIMIT:.0f} %)")
    if args.json is not None:
        row = {
            "benchmark": "lightning_cost",
            "time": time.time(),
            "python": sys.version.split()[0],
            "torch": torch.__version__,
            "lightning": importlib.import_module("lightning").__version__,
            "results": [asdict(result) for result in results],
        }
        with args.json.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
    return int(share > LIMIT)


if __name__ == "__main__":
    raise SystemExit(main())
