# SPDX-License-Identifier: Apache-2.0
"""Saving and loading a training run."""

from dataclasses import asdict
from pathlib import Path

import torch
import torch.distributed as dist

from tiny_vla.config import ModelConfig, StreamConfig
from tiny_vla.model import TinyVLA


def save(path: Path, model: TinyVLA, optimizer: torch.optim.Optimizer, step: int) -> None:
    """Write model, optimizer, step and every rank's random state. Called by all ranks; rank 0 writes."""
    states = [torch.get_rng_state()]
    if dist.is_initialized():
        states = [torch.empty(0, dtype=torch.uint8)] * dist.get_world_size()
        dist.all_gather_object(states, torch.get_rng_state())
        if dist.get_rank() != 0:
            return
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(
        {
            "config": asdict(model.config),
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "step": step,
            "random": states,
        },
        path,
    )


def load_model(path: Path, device: torch.device) -> TinyVLA:
    """The model of a checkpoint, for evaluation."""
    checkpoint = torch.load(path, map_location="cpu")
    config = dict(checkpoint["config"])
    prefix, expert = StreamConfig(**config.pop("prefix")), StreamConfig(**config.pop("expert"))
    model = TinyVLA(ModelConfig(**config, prefix=prefix, expert=expert))
    model.load_state_dict(checkpoint["model"])
    return model.to(device)


def resume(path: Path, model: TinyVLA, optimizer: torch.optim.Optimizer) -> int:
    """Put a checkpoint into ``model`` and ``optimizer``; returns the number of steps already done."""
    checkpoint = torch.load(path, map_location="cpu")
    model.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    rank = dist.get_rank() if dist.is_initialized() else 0
    if rank < len(checkpoint["random"]):
        torch.set_rng_state(checkpoint["random"][rank])
    return int(checkpoint["step"])
