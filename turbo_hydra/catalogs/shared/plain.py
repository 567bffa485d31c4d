# SPDX-License-Identifier: Apache-2.0
"""What a replacement that takes a module's work apart must know: nobody else has a hand in its parts."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

_PLAIN = (Tensor, nn.Parameter)


def not_plain(*tensors: Any) -> str | None:
    """Why a kernel is not for these tensors: parts of a larger one, quantised, or other subclasses; None if it may be.

    Looks at types only, and is traced by torch.compile without a break.
    """
    if all(type(item) in _PLAIN for item in tensors):
        return None
    return "tensors that are not plain"


def not_plain_linear(layer: Any) -> str | None:
    """Why a layer's product cannot be made from its weight alone; None if it can.

    An adapter, a quantised or a sharded layer has another class; accelerate's offloading puts a `forward` or hooks on
    the instance.
    """
    if type(layer) is not nn.Linear:
        return "a layer that is no plain linear one"
    if "forward" in layer.__dict__ or layer._forward_hooks or layer._forward_pre_hooks:
        return "a linear layer that somebody has hooked"
    return not_plain(layer.weight)


def autocast_dtype(device: torch.device) -> torch.dtype | None:
    """What products are made in where autocast is on; None where it is off."""
    return torch.get_autocast_dtype(device.type) if torch.is_autocast_enabled(device.type) else None
