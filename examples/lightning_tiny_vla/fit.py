#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Train the policy under Lightning; turbo-train starts this script, README.md says how."""

import argparse
from pathlib import Path

from lightning.pytorch import Trainer, seed_everything
from lightning.pytorch.loggers import TensorBoardLogger
from policy import Episodes, Policy

from turbo_hydra.integrations.lightning import TurboCallback, trainer_settings

DATA = Path(__file__).resolve().parents[1] / "tiny_vla" / "data"


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--output", type=Path, default=Path("lightning_logs"), help="folder of logs and checkpoints")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch-size", type=int, default=16, help="samples a step and rank")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--clip", type=float, default=1.0, help="largest gradient norm")
    parser.add_argument("--accumulate", type=int, default=1, help="batches a step")
    parser.add_argument("--num-workers", type=int, default=0)
    parser.add_argument("--precision", default="32-true")
    parser.add_argument("--devices", type=int, default=None, help="ranks of this node (default: those that run)")
    parser.add_argument("--num-nodes", type=int, default=None)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log-every", type=int, default=10)
    parser.add_argument("--resume", type=Path, default=None, help="a checkpoint to go on from")
    parser.add_argument("--no-eval", action="store_true", help="leave the held-out episodes out")
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    seed_everything(args.seed, workers=True)
    settings = trainer_settings(args.devices, args.num_nodes)
    ranks = settings.get("devices", 1) * settings.get("num_nodes", 1)
    trainer = Trainer(
        max_steps=args.steps,
        accumulate_grad_batches=args.accumulate,
        gradient_clip_val=args.clip,
        precision=args.precision,
        # The last layer's prefix half feeds nothing, so its parameters get no gradient.
        strategy="ddp_find_unused_parameters_true" if ranks > 1 else "auto",
        limit_val_batches=0 if args.no_eval else None,
        logger=TensorBoardLogger(args.output, name=""),
        log_every_n_steps=args.log_every,
        enable_progress_bar=False,
        callbacks=[TurboCallback()],
        **settings,
    )
    trainer.fit(Policy(args.lr), Episodes(args.data, args.batch_size, args.num_workers), ckpt_path=args.resume)
    if trainer.is_global_zero:
        shown = {name: round(float(value), 4) for name, value in trainer.callback_metrics.items()}
        print(f"{trainer.global_step} steps {shown}")


if __name__ == "__main__":
    main()
