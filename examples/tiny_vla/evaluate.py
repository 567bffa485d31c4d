#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measure a saved policy on the held-out episodes: python evaluate.py OUTPUT/checkpoint.pt"""

import argparse
from pathlib import Path

import torch

from tiny_vla import checkpoints
from tiny_vla.data import ActionChunks, Demonstrations, Normalizer
from tiny_vla.evaluation import action_error


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--data", type=Path, default=Path(__file__).resolve().parent / "data")
    parser.add_argument("--stride", type=int, default=1, help="measure every n-th held-out step")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()

    device = torch.device(args.device)
    model = checkpoints.load_model(args.checkpoint, device)
    demos = Demonstrations.load(args.data)
    held_out = ActionChunks(
        demos, Normalizer.fit(demos), model.config.horizon, model.config.instruction_length, held_out=True
    )
    for name, error in action_error(model, held_out, device, args.stride).items():
        print(f"held-out action error {name} {error:.4f}")


if __name__ == "__main__":
    main()
