# SPDX-License-Identifier: Apache-2.0
"""Bias and GELU of SigLIP's MLP in one pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from turbo_hydra import fallback
from turbo_hydra.catalogs.models.openpi.activations import is_gelu_tanh
from turbo_hydra.kernels.gelu_tanh_bias import gelu_tanh_bias, unfit

Forward = Callable[[Any, Tensor], Tensor]


def forward(original: Forward, options: None) -> Forward:
    """Factory for `SiglipMLP.forward`: fc2(gelu(fc1(x))), of which the kernel is the bias of fc1 and the GELU."""

    def forward(self: Any, hidden_states: Tensor) -> Tensor:
        first = self.fc1
        reason = _unfit(self.activation_fn, first)
        if reason is not None:
            fallback(reason)
            return original(self, hidden_states)
        # Whether the product will fit its bias can be told from the bias and the input: a product is not made twice.
        reason = unfit(first.bias, first.bias) or _differ(hidden_states, first.bias)
        if reason is not None:
            fallback(reason)
            return original(self, hidden_states)
        result: Tensor = self.fc2(gelu_tanh_bias(F.linear(hidden_states, first.weight), first.bias))
        return result

    return forward


def _unfit(activation: Any, first: Any) -> str | None:
    """Why the kernel is not for this MLP; None if it may be."""
    if not is_gelu_tanh(activation):
        return "another activation"
    if type(first) is not nn.Linear or first.bias is None:
        return "a first layer that is not linear with a bias"
    return None


def _differ(hidden_states: Tensor, bias: Tensor) -> str | None:
    return None if hidden_states.dtype == bias.dtype else "input and bias differ in dtype"
