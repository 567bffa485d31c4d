# SPDX-License-Identifier: Apache-2.0
"""Bias and GELU of an MLP of two linear layers in one pass, as SigLIP has it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from turbo_hydra import fallback
from turbo_hydra.catalogs.shared.activations import is_gelu_tanh
from turbo_hydra.catalogs.shared.plain import autocast_dtype, not_plain, not_plain_linear
from turbo_hydra.kernels.gelu_tanh_bias import gelu_tanh_bias, unfit

Forward = Callable[[Any, Tensor], Tensor]


def forward(original: Forward, options: None) -> Forward:
    """Factory for an MLP that is fc2(gelu(fc1(x))), of which the kernel is the bias of fc1 and the GELU."""

    def forward(self: Any, hidden_states: Tensor) -> Tensor:
        first = self.fc1
        reason = _unfit(self.activation_fn, first, hidden_states)
        if reason is not None:
            fallback(reason)
            return original(self, hidden_states)
        result: Tensor = self.fc2(gelu_tanh_bias(F.linear(hidden_states, first.weight), first.bias))
        return result

    return forward


def _unfit(activation: Any, first: Any, x: Tensor) -> str | None:
    """Why the kernel is not for this MLP; None if it may be. A product is not made twice, so it is told before it."""
    if not is_gelu_tanh(activation):
        return "another activation"
    reason = not_plain_linear(first)
    if reason is not None:
        return reason
    if first.bias is None:
        return "a first layer without a bias"
    if x.dtype != first.bias.dtype or autocast_dtype(x.device) not in (None, x.dtype):
        return "input and bias differ in dtype"
    return not_plain(x, first.bias) or unfit(first.bias, first.bias)
