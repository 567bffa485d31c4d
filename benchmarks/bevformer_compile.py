# SPDX-License-Identifier: Apache-2.0
"""BEVFormer's encoder or decoder under Inductor on a CPU, against the same code without a compiler, in one process.

    python -m benchmarks.bevformer_compile --repo CHECKOUT --part encoder [--size tiny] [--rounds 6]

All groups of the config are on, and `bevformer.compile_<part>`; nothing is dropped out, since Inductor draws other
numbers. Three steps of AdamW from the same parameters each way, then turns; the clock is the CPU time of the thread.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import turbo_hydra
from benchmarks.bevformer_parts import Parts, leave_out_dropout, upstream
from benchmarks.bevformer_worker import config_of, graphs
from turbo_hydra.measure.statistics import ratio_interval

STEPS = 3
EAGER, COMPILED = "force_eager", "default"


def train(parts: Parts, part: str, state: dict[str, Any], stance: Any) -> list[tuple[dict[str, Any], float]]:
    """Results and gradients of each step by name, and its CPU seconds."""
    import torch

    torch.compiler.set_stance(stance)
    parts.head.load_state_dict(state)
    optimizer = torch.optim.AdamW([item for item in parts.head.parameters() if item.requires_grad], lr=2e-4)
    steps = []
    for _ in range(STEPS):
        start = time.thread_time()
        found = parts.run(part, 0)
        seconds = time.thread_time() - start
        tensors = {f"result {name}": value.detach().clone() for name, value in found.items()}
        for name, parameter in parts.head.named_parameters():
            if parameter.grad is not None:
                tensors[f"gradient {name}"] = parameter.grad.clone()
        optimizer.step()
        steps.append((tensors, seconds))
    return steps


def differences(expected: dict[str, Any], found: dict[str, Any]) -> dict[str, float]:
    """The largest difference of a result and of a gradient, each of the largest number of its tensor."""
    if expected.keys() != found.keys():
        raise SystemExit(f"only one side has {', '.join(sorted(expected.keys() ^ found.keys()))}")
    largest = {"result": 0.0, "gradient": 0.0}
    for name, tensor in expected.items():
        kind = name.partition(" ")[0]
        distance = float((found[name] - tensor).abs().max() / tensor.abs().max().clamp_min(1e-30))
        largest[kind] = max(largest[kind], distance)
    return largest


def main(arguments: Sequence[str] | None = None) -> None:
    """Train both ways, take turns, print what was found."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repo", type=Path, required=True, help="a checkout of BEVFormer")
    parser.add_argument("--part", required=True, choices=("encoder", "decoder"))
    parser.add_argument("--size", default="tiny", choices=("tiny", "small", "base"))
    parser.add_argument("--rounds", type=int, default=6)
    args = parser.parse_args(arguments)
    sys.path.insert(0, str(args.repo.resolve()))
    with tempfile.TemporaryDirectory() as folder:
        file, _ = config_of(f"+bevformer.compile_{args.part}", "bevformer", Path(folder))
        turbo_hydra.apply(optimization_config_path=file)
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    made = upstream(str(args.repo.resolve()), args.size, "cpu", whole=False)
    leave_out_dropout(made["head"])
    parts = Parts(made, "cpu")
    state = {name: value.clone() for name, value in parts.head.state_dict().items()}
    sides = {stance: train(parts, args.part, state, stance) for stance in (EAGER, COMPILED)}
    turns = []
    for number in range(args.rounds):
        turn = {}
        for stance in (EAGER, COMPILED) if number % 2 else (COMPILED, EAGER):
            torch.compiler.set_stance(stance)
            start = time.thread_time()
            parts.run(args.part, 0)
            turn[stance] = time.thread_time() - start
        turns.append(turn[EAGER] / turn[COMPILED])
    interval = ratio_interval(turns)
    found = {
        "graphs": graphs(),
        "first step, CPU seconds": round(sides[COMPILED][0][1], 1),
        "differences": [
            differences(eager, compiled)
            for (eager, _), (compiled, _) in zip(sides[EAGER], sides[COMPILED], strict=True)
        ],
        "times_as_fast": [round(value, 3) for value in (interval.value, interval.low, interval.high)],
    }
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
