# SPDX-License-Identifier: Apache-2.0
"""Which activation a module of transformers holds."""

from __future__ import annotations

from typing import Any

# By the class's name: importing it would tie this to one library, and the classes have changed names and places.
_NAMES = {"PytorchGELUTanh": "gelu_tanh", "GELUTanh": "gelu_tanh", "SiLUActivation": "silu", "SiLU": "silu"}


def known(activation: Any) -> str | None:
    """`gelu_tanh` or `silu`, where the module computes that; None for all others.

    One whose instance has a forward of its own is another: the package `kernels` gives layers of the hub so.
    """
    name = _NAMES.get(type(activation).__name__)
    if name is None or "forward" not in activation.__dict__:
        return name
    own = activation.__dict__["forward"]
    return name if getattr(own, "__func__", own) is type(activation).forward else None


def is_gelu_tanh(activation: Any) -> bool:
    """Whether it is GELU in its tanh form; the class has had two names."""
    return known(activation) == "gelu_tanh"
