# SPDX-License-Identifier: Apache-2.0
"""Make existing PyTorch training code faster without editing it, and prove it.

Importing this package imports neither torch nor Hydra.
"""

from typing import TYPE_CHECKING, Any

from turbo_hydra.api import apply, check
from turbo_hydra.compatibility import replace_import
from turbo_hydra.engine.checks import CheckContext, CompatibilityResult
from turbo_hydra.engine.declarations import About, replace, wrap
from turbo_hydra.engine.errors import (
    AlreadyAppliedError,
    OptimizationConfigError,
    OptimizationConfigNotFoundError,
    OptimizationRollbackError,
    StrictStop,
    TurboHydraError,
)
from turbo_hydra.engine.hits import fallback
from turbo_hydra.engine.latch import Latch, end_step
from turbo_hydra.engine.layers import redecorated
from turbo_hydra.engine.prepared import PreparedExecution
from turbo_hydra.engine.registry import Registry, group
from turbo_hydra.engine.report import OptimizationReport

if TYPE_CHECKING:
    from turbo_hydra.config import OptimizationConfigCatalog

__all__ = [
    "About",
    "AlreadyAppliedError",
    "CheckContext",
    "CompatibilityResult",
    "Latch",
    "OptimizationConfigCatalog",
    "OptimizationConfigError",
    "OptimizationConfigNotFoundError",
    "OptimizationReport",
    "OptimizationRollbackError",
    "PreparedExecution",
    "Registry",
    "StrictStop",
    "TurboHydraError",
    "apply",
    "check",
    "end_step",
    "fallback",
    "group",
    "redecorated",
    "replace",
    "replace_import",
    "wrap",
]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # Configuration reads YAML, which a catalog need not pay for.
    if name == "OptimizationConfigCatalog":
        from turbo_hydra.config import OptimizationConfigCatalog

        return OptimizationConfigCatalog
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
