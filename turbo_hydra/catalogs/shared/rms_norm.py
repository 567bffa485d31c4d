# SPDX-License-Identifier: Apache-2.0
"""RMS norm in one pass, in the two forms that models have it in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from turbo_hydra import fallback
from turbo_hydra.catalogs.shared.plain import not_plain
from turbo_hydra.kernels.rms_norm import rms_norm, unfit

Forward = Callable[[Any, Tensor], Tensor]


def gemma(original: Forward, options: None) -> Forward:
    """Factory for a norm that scales by 1 + weight in float32 and rounds to x's dtype at the end, as Gemma's does."""

    def forward(self: Any, x: Tensor) -> Tensor:
        reason = not_plain(x, self.weight) or unfit(x, self.weight)
        if reason is not None:
            fallback(reason)
            return original(self, x)
        return rms_norm(x, self.weight, self.eps, 1.0)

    return forward


def llama(original: Forward, options: None) -> Forward:
    """Factory for a norm that rounds first and then scales by its weight, as Llama's does.

    The product has the dtype that both promote to: a weight of another dtype than x stays with the original.
    """

    def forward(self: Any, hidden_states: Tensor) -> Tensor:
        reason = not_plain(hidden_states, self.weight) or unfit(hidden_states, self.weight)
        if reason is None and self.weight.dtype != hidden_states.dtype:
            reason = "a weight of another dtype"
        if reason is not None:
            fallback(reason)
            return original(self, hidden_states)
        return rms_norm(hidden_states, self.weight, self.variance_epsilon)

    return forward
