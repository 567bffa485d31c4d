# SPDX-License-Identifier: Apache-2.0
"""The script's own losses behind those that a `GradScaler` scaled."""

from __future__ import annotations

import weakref
from typing import Any

import torch

# Losses noted since the last step; more than a script calls backward on before it updates.
MOST = 32


class ScaledLosses:
    """What was scaled since the last step, without the graphs, which would keep activations alive."""

    def __init__(self) -> None:
        self._noted: list[tuple[weakref.ref[torch.Tensor], torch.Tensor, torch.Tensor]] = []

    def note(self, outputs: Any, scaled: Any) -> None:
        """A scaler made `scaled` of `outputs`, tensors or sequences of them; only single numbers are losses."""
        pairs = zip(outputs, scaled, strict=True) if isinstance(scaled, (list, tuple)) else [(outputs, scaled)]
        for own, product in pairs:
            if isinstance(product, torch.Tensor) and product.numel() == 1:
                self._noted.append((weakref.ref(product), own.detach(), product.detach()))
        del self._noted[:-MOST]

    def unscaled(self, tensor: Any) -> Any:
        """Return the script's own number for one that `backward` is called on; what was never scaled is its own."""
        if not self._noted or not isinstance(tensor, torch.Tensor) or tensor.numel() != 1:
            return tensor
        for reference, own, _ in reversed(self._noted):
            if reference() is tensor:
                return own
        # The script went on computing with the scaled loss (divided it for accumulation).
        _, own, product = self._noted[-1]
        return tensor.detach() * (own / product)

    def forget(self) -> None:
        """A step has ended."""
        self._noted.clear()
