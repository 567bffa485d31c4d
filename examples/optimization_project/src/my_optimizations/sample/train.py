# SPDX-License-Identifier: Apache-2.0
"""Train the sample model to count."""

import argparse

import torch
import torch.nn.functional as F
from sample_model.network import Counter


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--length", type=int, default=48)
    parser.add_argument("--numbers", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    torch.manual_seed(args.seed)
    model = Counter(args.numbers).to(args.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(args.steps):
        start = torch.randint(args.numbers, (args.batch_size, 1))
        tokens = ((start + torch.arange(args.length + 1)) % args.numbers).to(args.device)
        loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0 or step + 1 == args.steps:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
