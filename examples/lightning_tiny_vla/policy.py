# SPDX-License-Identifier: Apache-2.0
"""The policy of the example `tiny_vla` and its demonstrations, as Lightning wants them."""

from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningDataModule, LightningModule
from torch.utils.data import DataLoader

from tiny_vla.config import ModelConfig
from tiny_vla.data import ActionChunks, Demonstrations, Normalizer
from tiny_vla.model import TinyVLA

MODEL_INPUTS = ("images", "tokens", "token_mask", "proprio", "actions")
Batch = dict[str, torch.Tensor]


class Policy(LightningModule):
    """Flow matching on chunks of actions; AdamW with a linear warm-up."""

    def __init__(self, lr: float = 1e-3, warmup: int = 20) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.lr, self.warmup = lr, warmup
        self.model = TinyVLA(ModelConfig())

    def loss(self, batch: Batch) -> torch.Tensor:
        losses: torch.Tensor = self.model(**{name: batch[name] for name in MODEL_INPUTS})
        return losses.mean()

    def training_step(self, batch: Batch, index: int) -> torch.Tensor:
        loss = self.loss(batch)
        self.log("loss", loss)
        return loss

    def validation_step(self, batch: Batch, index: int) -> None:
        self.log("held_out_loss", self.loss(batch), sync_dist=True)

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.model.parameters(), lr=self.lr, betas=(0.9, 0.95), weight_decay=1e-2)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / self.warmup))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


class Episodes(LightningDataModule):
    """Three tasks, recorded; a part of the episodes is held out."""

    def __init__(self, folder: Path, batch_size: int = 16, num_workers: int = 0) -> None:
        super().__init__()
        self.folder, self.batch_size, self.num_workers = folder, batch_size, num_workers

    def setup(self, stage: str) -> None:
        demos = Demonstrations.load(self.folder)
        normalizer, config = Normalizer.fit(demos), ModelConfig()
        self.train_set, self.held_out = (
            ActionChunks(demos, normalizer, config.horizon, config.instruction_length, held_out=part)
            for part in (False, True)
        )

    def train_dataloader(self) -> DataLoader[Batch]:
        return DataLoader(self.train_set, self.batch_size, shuffle=True, drop_last=True, num_workers=self.num_workers)

    def val_dataloader(self) -> DataLoader[Batch]:
        return DataLoader(self.held_out, self.batch_size, num_workers=self.num_workers)
