# SPDX-License-Identifier: Apache-2.0
"""Lightning's loop is a script like any other: nothing in the meter knows of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

if TYPE_CHECKING:
    from tests.measure.conftest import Measured

lightning = pytest.importorskip("lightning.pytorch")


def fit(tmp_path: Path, losses: list[float], **settings: Any) -> None:
    class Module(lightning.LightningModule):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 1)

        def training_step(self, batch: torch.Tensor, index: int) -> torch.Tensor:
            loss: torch.Tensor = self.layer(batch).square().mean()
            losses.append(loss.item())
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters(), 1e-2)

    torch.manual_seed(0)
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=1,
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tmp_path,
        **settings,
    )
    trainer.fit(Module(), torch.utils.data.DataLoader(torch.randn(24, 4), batch_size=4))  # type: ignore[arg-type]


def test_automatic_optimization(measured: Measured, tmp_path: Path) -> None:
    losses: list[float] = []
    with measured() as metered:
        fit(tmp_path, losses, gradient_clip_val=0.5)
    rows = metered.rows
    assert len(losses) == 6
    assert [row.loss for row in rows] == losses
    assert all(row.grad_norm is not None and row.data_ms is not None for row in rows)


def test_accumulation_sums_the_losses_that_lightning_divided(measured: Measured, tmp_path: Path) -> None:
    losses: list[float] = []
    with measured() as metered:
        fit(tmp_path, losses, accumulate_grad_batches=3)
    means = [sum(losses[:3]) / 3, sum(losses[3:]) / 3]
    assert [row.loss for row in metered.rows] == pytest.approx(means)
