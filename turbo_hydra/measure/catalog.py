# SPDX-License-Identifier: Apache-2.0
"""The meter's own catalog: observers of what torch has no public hook for."""

from __future__ import annotations

from turbo_hydra import group, wrap
from turbo_hydra.engine.declarations import About

_HERE = "turbo_hydra.measure.observers"

STEPS = group(
    "measure.steps",
    wrap("torch.autograd.backward", f"{_HERE}.observe_backward", observer=True),
    wrap(
        "torch.utils.data.dataloader._BaseDataLoaderIter.__next__",
        f"{_HERE}.observe_next_batch",
        observer=True,
    ),
    wrap(
        "torch.nn.utils.clip_grad.clip_grad_norm_",
        f"{_HERE}.observe_clip",
        aliases=("torch.nn.utils.clip_grad_norm_",),
        observer=True,
    ),
    wrap("torch.amp.grad_scaler.GradScaler.scale", f"{_HERE}.observe_scale", observer=True),
    wrap("torch.amp.grad_scaler.GradScaler.step", f"{_HERE}.observe_scaler_step", observer=True),
    about=About(
        why="tells the meter each step's loss, gradient norm and waiting for data, without an edit of the script",
        numerics="bitwise",
        validated="torch 2.13.0 on a CPU",
    ),
)
