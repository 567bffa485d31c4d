# SPDX-License-Identifier: Apache-2.0
"""How close the sampled actions are to the expert's on episodes that were held out."""

import torch
from torch.utils.data import DataLoader, Subset

from tiny_vla.data import ActionChunks
from tiny_vla.model import TinyVLA


@torch.no_grad()
def action_error(
    model: TinyVLA, held_out: ActionChunks, device: torch.device, stride: int, batch_size: int = 32, seed: int = 0
) -> dict[str, float]:
    """Mean squared error of the actions for each task and for ``all``, over every ``stride``-th held-out step.

    ``still`` is the error of always answering with the training episodes' mean action: what a policy must beat.
    """
    model.eval()
    generator = torch.Generator().manual_seed(seed)
    names = held_out.demos.tasks
    errors: list[torch.Tensor] = []
    baseline: list[torch.Tensor] = []
    tasks: list[torch.Tensor] = []
    for batch in DataLoader(Subset(held_out, range(0, len(held_out), stride)), batch_size):
        noise = torch.randn(batch["actions"].shape, generator=generator)
        observation = {key: batch[key].to(device) for key in ("images", "tokens", "token_mask", "proprio")}
        sampled = held_out.normalizer.raw_actions(model.sample(**observation, noise=noise.to(device)).cpu())
        expert = held_out.normalizer.raw_actions(batch["actions"])
        errors.append((sampled - expert).square().mean(dim=(1, 2)))
        baseline.append((torch.as_tensor(held_out.normalizer.action_mean) - expert).square().mean(dim=(1, 2)))
        tasks.append(batch["task"])
    model.train()
    error, task = torch.cat(errors), torch.cat(tasks)
    result = {name: error[task == number].mean().item() for number, name in enumerate(names)}
    return {**result, "all": error.mean().item(), "still": torch.cat(baseline).mean().item()}
