# SPDX-License-Identifier: Apache-2.0
"""Make existing PyTorch training code faster without editing it, and prove it.

Importing this package imports neither torch nor Hydra.
"""

from typing import TYPE_CHECKING, Any

from turbo_hydra.engine.declarations import About, replace, wrap
from turbo_hydra.engine.registry import Registry, group

if TYPE_CHECKING:
    from turbo_hydra.config import OptimizationConfigCatalog as OptimizationConfigCatalog

__version__ = "0.1.0"
__all__ = ["About", "Registry", "group", "replace", "wrap"]


def __getattr__(name: str) -> Any:
    # Configuration reads YAML, which a catalog need not pay for.
    if name == "OptimizationConfigCatalog":
        from turbo_hydra.config import OptimizationConfigCatalog

        return OptimizationConfigCatalog
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
