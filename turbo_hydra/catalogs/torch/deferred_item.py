# SPDX-License-Identifier: Apache-2.0
"""`loss.item()` in a loop that logs each step: the number is fetched, and waited for when it is used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from turbo_hydra import fallback
from turbo_hydra.catalogs.shared.deferred import DeferredNumber, fetch


def backward(original: Callable[..., None], options: None) -> Callable[..., None]:
    """Factory for `Tensor.backward`: the `item()` of what it is called on is deferred from then on."""

    def backward(
        self: Tensor,
        gradient: Tensor | None = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        inputs: Any = None,
    ) -> None:
        original(self, gradient, retain_graph, create_graph, inputs)
        reason = _unfit(self)
        if reason is None:
            defer(self)
        else:
            fallback(reason)

    return backward


def defer(loss: Tensor) -> None:
    """Let this tensor's `item()` give a number that is waited for later."""
    value = loss.detach()  # the same memory: what is written to it until the call counts
    # An attribute of the instance, found before the class's method.
    loss.item = lambda: DeferredNumber(fetch(value))  # type: ignore[method-assign, assignment, return-value]


def _unfit(loss: Tensor) -> str | None:
    if loss.device.type == "cpu":
        return "on the host already"
    if type(loss) is not Tensor or loss.numel() != 1 or not loss.is_floating_point():
        return "no plain floating-point scalar"
    if torch.compiler.is_compiling() or torch.cuda.is_current_stream_capturing():
        return "within a compiler or a graph"
    return None
