# SPDX-License-Identifier: Apache-2.0
"""Tensors that depend on sizes alone, made once for each; whoever writes into one does not spoil the next."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable

import torch
from torch import Tensor

_KEPT = 64


class Constants:
    """Keeps the tensors that were asked for last.

    torch raises a tensor's version at each write in place, through views too: one that was written into since it was
    made is made anew. Who holds it meanwhile holds the written one, as if it were its own.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[Hashable, tuple[Tensor, int]] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], Tensor]) -> Tensor:
        """What `make` gives for a `key` that says all that it depends on; not to be written into."""
        # The compiler is asked first: it cannot follow the other question.
        if torch.compiler.is_compiling() or torch.is_inference_mode_enabled():
            return make()  # nothing that a compiler would have to keep, or without a version
        found = self._kept.get(key)
        if found is None or found[0]._version != found[1]:
            made = make()
            found = self._kept[key] = (made, made._version)
            if len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return found[0]


def uploaded(values: Tensor, device: torch.device) -> Tensor:
    """A small tensor of the host on `device`, without waiting for what is queued there."""
    if device.type == "cpu":
        return values
    return values.pin_memory().to(device, non_blocking=True)
