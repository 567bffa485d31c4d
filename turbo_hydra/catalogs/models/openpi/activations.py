# SPDX-License-Identifier: Apache-2.0
"""Which activation a module of transformers holds."""

from __future__ import annotations

from typing import Any


def is_gelu_tanh(activation: Any) -> bool:
    """Whether it is GELU in its tanh form; the class has had two names."""
    return type(activation).__name__ in ("PytorchGELUTanh", "GELUTanh")
