# SPDX-License-Identifier: Apache-2.0
"""Flow matching: times, noise and the embedding of a time."""

import math

import torch


def sample_time(batch: int, device: torch.device) -> torch.Tensor:
    """Times in (0, 1), more of them near 1, where there is mostly noise."""
    beta = torch.distributions.Beta(torch.tensor(1.5, device=device), torch.tensor(1.0, device=device))
    return beta.sample((batch,)) * 0.999 + 0.001


def embed_time(time: torch.Tensor, width: int, shortest: float = 4e-3, longest: float = 4.0) -> torch.Tensor:
    """Sines and cosines [batch, width] of ``time`` [batch] with periods from ``shortest`` to ``longest``."""
    fraction = torch.linspace(0.0, 1.0, width // 2, device=time.device)
    period = shortest * (longest / shortest) ** fraction
    angles = 2 * math.pi * time[:, None] / period[None, :]
    return torch.cat((angles.sin(), angles.cos()), dim=-1)
