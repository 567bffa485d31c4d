# SPDX-License-Identifier: Apache-2.0
"""What lives when training begins is set aside, so that the garbage collector does not walk through it again."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

from turbo_hydra import fallback
from turbo_hydra.catalogs.torch.options import GcFreeze


def iterate(original: Callable[..., Iterator[Any]], options: GcFreeze) -> Callable[..., Iterator[Any]]:
    """Factory for `DataLoader.__iter__`: at the first batch model and data are there, and workers are not yet."""

    def __iter__(self: Any) -> Iterator[Any]:
        if gc.get_freeze_count():
            fallback("frozen already")
        elif not gc.isenabled():
            fallback("the script has switched the collector off")
        else:
            if options.collect:
                gc.collect()
            gc.freeze()
        return original(self)

    return __iter__
