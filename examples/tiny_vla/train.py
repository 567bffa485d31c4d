#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Train the policy on the recorded demonstrations, then measure it on the held-out episodes.

python train.py                                                  one process
python -m torch.distributed.run --nproc-per-node 2 train.py      one process a rank
"""

import argparse
import math
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from tiny_vla import checkpoints
from tiny_vla.config import ModelConfig
from tiny_vla.data import ActionChunks, Demonstrations, EndlessBatches, Normalizer
from tiny_vla.evaluation import action_error
from tiny_vla.model import TinyVLA

MODEL_INPUTS = ("images", "tokens", "token_mask", "proprio", "actions")


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path(__file__).resolve().parent / "data")
    parser.add_argument("--output", type=Path, default=None, help="folder to write checkpoint.pt into (default: none)")
    parser.add_argument("--resume", type=Path, default=None, help="a checkpoint.pt to go on from")
    parser.add_argument("--save-every", type=int, default=0, help="also write step-N.pt every so many steps")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=16, help="samples a step and rank")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--warmup", type=int, default=20, help="steps until the full learning rate")
    parser.add_argument("--clip", type=float, default=1.0, help="largest gradient norm")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--num-workers", type=int, default=0)
    parser.add_argument("--log-every", type=int, default=10)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--no-checkpointing", action="store_true", help="keep activations instead of recomputing them")
    parser.add_argument("--eval-stride", type=int, default=4, help="measure every n-th held-out step at the end")
    parser.add_argument("--no-eval", action="store_true", help="skip the held-out episodes at the end")
    return parser.parse_args()


def setup_ranks(device: str) -> tuple[int, int, torch.device]:
    """Join the process group when there is more than one rank; returns rank, number of ranks and device."""
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    if ranks == 1:
        return 0, 1, torch.device(device)
    if device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if device == "cuda" else "gloo")
    return dist.get_rank(), ranks, torch.device(device)


def learning_rate(step: int, args: argparse.Namespace) -> float:
    """Linear warm-up, then a cosine down to a tenth."""
    if step < args.warmup:
        return args.lr * (step + 1) / args.warmup
    progress = (step - args.warmup) / max(1, args.steps - args.warmup)
    return args.lr * (0.1 + 0.45 * (1 + math.cos(math.pi * min(1.0, progress))))


def train_step(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer, batch: dict[str, torch.Tensor], clip: float
) -> tuple[float, float]:
    """One step; returns the loss and the gradient norm before clipping."""
    losses = model(**batch)
    loss = losses.mean()
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
    optimizer.step()
    return loss.item(), norm.item()


def main() -> None:
    args = parse_args()
    rank, ranks, device = setup_ranks(args.device)
    torch.manual_seed(args.seed)

    demos = Demonstrations.load(args.data)
    normalizer = Normalizer.fit(demos)
    config = ModelConfig(gradient_checkpointing=not args.no_checkpointing)
    train_set, held_out = (
        ActionChunks(demos, normalizer, config.horizon, config.instruction_length, held_out=part)
        for part in (False, True)
    )
    policy = TinyVLA(config).to(device)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=args.lr, betas=(0.9, 0.95), weight_decay=1e-2)
    torch.manual_seed(args.seed + rank)  # same weights everywhere, other noise on every rank
    start = checkpoints.resume(args.resume, policy, optimizer) if args.resume else 0
    model: torch.nn.Module = policy
    if ranks > 1:
        # The last layer's prefix half feeds nothing, so its parameters get no gradient.
        model = DistributedDataParallel(policy, find_unused_parameters=True)
    batches = EndlessBatches(len(train_set), args.batch_size, args.seed, start, rank, ranks)
    own = torch.Generator().manual_seed(args.seed)  # or the loader takes a number from the state a resumed run restored
    loader = iter(DataLoader(train_set, batch_sampler=batches, num_workers=args.num_workers, generator=own))
    if rank == 0:
        count = sum(parameter.numel() for parameter in policy.parameters())
        print(f"{count:,} parameters, {len(train_set)} training and {len(held_out)} held-out samples, {ranks} rank(s)")

    began = time.perf_counter()
    for step in range(start, args.steps):
        batch = next(loader)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, args)
        loss, norm = train_step(model, optimizer, {key: batch[key].to(device) for key in MODEL_INPUTS}, args.clip)
        if rank == 0 and ((step + 1) % args.log_every == 0 or step == start):
            print(f"step {step + 1} loss {loss:.6f} grad_norm {norm:.4f}", flush=True)
        if args.output is not None and args.save_every and (step + 1) % args.save_every == 0:
            checkpoints.save(args.output / f"step-{step + 1}.pt", policy, optimizer, step + 1)
    if rank == 0:
        took = time.perf_counter() - began
        print(f"{args.steps - start} steps in {took:.1f} s")

    if args.output is not None:
        checkpoints.save(args.output / "checkpoint.pt", policy, optimizer, args.steps)
    if rank == 0 and not args.no_eval:
        for name, error in action_error(policy, held_out, device, args.eval_stride).items():
            print(f"held-out action error {name} {error:.4f}")
    if ranks > 1:
        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
