# SPDX-License-Identifier: Apache-2.0
"""The transformer."""

import torch
from torch import nn

from sample_model.layers import Layer, RMSNorm


class Counter(nn.Module):
    """Predicts each next number of a sequence."""

    def __init__(self, numbers: int = 64, width: int = 64, layers: int = 2, heads: int = 4) -> None:
        super().__init__()
        self.embedding = nn.Embedding(numbers, width)
        self.layers = nn.Sequential(*(Layer(width, heads) for _ in range(layers)))
        self.norm = RMSNorm(width)
        self.scores = nn.Linear(width, numbers)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.scores(self.norm(self.layers(self.embedding(tokens))))
