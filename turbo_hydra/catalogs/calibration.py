# SPDX-License-Identifier: Apache-2.0
"""A group that changes nothing: what a sweep says of it shows what the sweep's other verdicts are worth.

No config has it on; the example's has it, for its ablations. Beside another config:
`optimization.catalogs=[..., turbo_hydra.catalogs.calibration]`, `optimization.groups.calibration.nothing=true`, and
`optimization.force=[calibration.nothing]`, since that config has no evidence of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from turbo_hydra import About, group, wrap

group(
    "calibration.nothing",
    wrap("torch.optim.Optimizer.zero_grad", "turbo_hydra.catalogs.calibration.nothing"),
    about=About(
        why="Calls the original and does nothing else, so it is worth nothing. A sweep that gives it 'keep' is not to "
        "be trusted in its other verdicts either.",
        memory="none",
        numerics="bitwise",
        validated="every torch 2 whose optimizers have zero_grad(set_to_none)",
    ),
)


def nothing(original: Callable[..., None], options: None) -> Callable[..., None]:
    """Factory for `torch.optim.Optimizer.zero_grad`."""

    def zero_grad(self: Any, set_to_none: bool = True) -> None:
        return original(self, set_to_none)

    return zero_grad
