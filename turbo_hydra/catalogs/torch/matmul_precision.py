# SPDX-License-Identifier: Apache-2.0
"""float32 matrix products on tensor cores, for scripts that never said how exact they must be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from turbo_hydra import fallback
from turbo_hydra.catalogs.torch.options import MatmulPrecision


def init(original: Callable[..., None], options: MatmulPrecision) -> Callable[..., None]:
    """Factory for `Optimizer.__init__`: with an optimizer training begins, and what precedes it stays exact."""

    def __init__(self: Any, params: Any, defaults: dict[str, Any]) -> None:
        if torch.get_float32_matmul_precision() == "highest":
            torch.set_float32_matmul_precision(options.precision)
        else:
            fallback("a precision is set already")
        original(self, params, defaults)

    return __init__
