# SPDX-License-Identifier: Apache-2.0
"""The loop of upstream's script around the small model: what it asks of losses and norms, and when it asks it."""

import argparse
import logging
import os
from types import SimpleNamespace

import torch
import torch.distributed as dist
import torch.nn.parallel
import tqdm
from openpi.models_pytorch.pi0_pytorch import PI0Pytorch
from openpi.training import data_loader as _data


def train_loop(config):
    use_ddp = int(os.environ.get("WORLD_SIZE", "1")) > 1
    if use_ddp and not dist.is_initialized():
        dist.init_process_group(backend="gloo", init_method="env://")
    is_main = not use_ddp or dist.get_rank() == 0
    torch.manual_seed(config.seed + (dist.get_rank() if use_ddp else 0))
    loader = _data.DataLoaderImpl(
        torch.utils.data.DataLoader(
            _data.FakeDataset(),
            batch_size=config.batch_size,
            num_workers=config.num_workers,
            multiprocessing_context="spawn" if config.num_workers else None,
            persistent_workers=config.num_workers > 0,
            collate_fn=_data._collate_fn,
        )
    )
    model_config = SimpleNamespace(
        dtype=config.pytorch_training_precision,
        pi05=True,
        paligemma_variant="dummy",
        action_expert_variant="expert",
        action_dim=5,
        action_horizon=3,
    )
    model = PI0Pytorch(model_config)
    model.gradient_checkpointing_enable()
    logging.info("Enabled gradient checkpointing for memory optimization")
    if use_ddp:
        model = torch.nn.parallel.DistributedDataParallel(
            model, find_unused_parameters=True, gradient_as_bucket_view=True, static_graph=False
        )
    optim = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=1e-10)
    model.train()
    pbar = tqdm.tqdm(total=config.num_train_steps, disable=not is_main) if is_main else None
    infos, global_step = [], 0
    while global_step < config.num_train_steps:
        for observation, actions in loader:
            if global_step >= config.num_train_steps:
                break
            losses = model(observation, actions.float())
            if isinstance(losses, list | tuple):
                losses = torch.stack(losses)
            elif not isinstance(losses, torch.Tensor):
                losses = torch.tensor(losses, dtype=torch.float32)
            loss = losses.mean()
            loss.backward()
            grad_norm = torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
            optim.step()
            optim.zero_grad(set_to_none=True)
            if is_main:
                infos.append(
                    {
                        "loss": loss.item(),
                        "grad_norm": float(grad_norm) if isinstance(grad_norm, torch.Tensor) else grad_norm,
                    }
                )
            if is_main and global_step % config.log_interval == 0:
                avg_loss = sum(info["loss"] for info in infos) / len(infos)
                avg_norm = sum(info["grad_norm"] for info in infos if info["grad_norm"] is not None) / len(infos)
                logging.info(f"step={global_step} loss={avg_loss:.4f} grad_norm={avg_norm:.2f}")
                infos = []
            global_step += 1
            if pbar is not None:
                pbar.update(1)
                pbar.set_postfix({"loss": f"{loss.item():.4f}", "step": global_step})
    if use_ddp:
        dist.destroy_process_group()


def main():
    logging.basicConfig(level=logging.INFO)
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("--batch_size", type=int, default=2)
    parser.add_argument("--num_train_steps", type=int, default=4)
    parser.add_argument("--log_interval", type=int, default=100)
    parser.add_argument("--num_workers", type=int, default=0)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--pytorch_training_precision", default="bfloat16")
    train_loop(parser.parse_known_args()[0])


if __name__ == "__main__":
    main()
