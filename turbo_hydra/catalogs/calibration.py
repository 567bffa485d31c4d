# SPDX-License-Identifier: Apache-2.0
"""A group that changes nothing: what a sweep says of it shows what the sweep's other verdicts are worth.

No config has it on. Beside a config: `optimization.catalogs=[..., turbo_hydra.catalogs.calibration]`,
`optimization.groups.calibration.nothing=true`, and `optimization.force=[calibration.nothing]`, since it has no
evidence.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from turbo_hydra import About, group, wrap

group(
    "calibration.nothing",
    wrap("torch.optim.Optimizer.zero_grad", "turbo_hydra.catalogs.calibration.nothing"),
    about=About(
        why="Calls the original. In an ablation it must not get 'keep': a planted null.",
        numerics="bitwise",
        validated="every torch whose optimizers have zero_grad(set_to_none)",
    ),
)


def nothing(original: Callable[..., None], options: None) -> Callable[..., None]:
    """Factory for `torch.optim.Optimizer.zero_grad`."""

    def zero_grad(self: Any, set_to_none: bool = True) -> None:
        return original(self, set_to_none)

    return zero_grad
