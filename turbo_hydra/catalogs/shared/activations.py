# SPDX-License-Identifier: Apache-2.0
"""Which activation a module of transformers holds."""

from __future__ import annotations

from typing import Any

# By the class's name: importing it would tie this to one library, and the classes have changed names and places.
_NAMES = {"PytorchGELUTanh": "gelu_tanh", "GELUTanh": "gelu_tanh", "SiLUActivation": "silu", "SiLU": "silu"}


def known(activation: Any) -> str | None:
    """`gelu_tanh` or `silu`, where the module computes that; None for all others."""
    return _NAMES.get(type(activation).__name__)


def is_gelu_tanh(activation: Any) -> bool:
    """Whether it is GELU in its tanh form; the class has had two names."""
    return known(activation) == "gelu_tanh"
