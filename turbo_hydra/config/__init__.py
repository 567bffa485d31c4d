# SPDX-License-Identifier: Apache-2.0
"""Optimization configs: their files, the choice among them, and their evidence. Imports neither Hydra nor torch."""

from turbo_hydra.config.catalog import OptimizationConfigCatalog
from turbo_hydra.config.choose import choose
from turbo_hydra.config.evidence_file import Evidence
from turbo_hydra.config.names import check_names, load, load_catalogs, unmatched
from turbo_hydra.config.parts import Compatibility, Metadata
from turbo_hydra.config.schema import OptimizationConfig

__all__ = [
    "OptimizationConfig",
    "OptimizationConfigCatalog",
    "Metadata",
    "Compatibility",
    "Evidence",
    "choose",
    "check_names",
    "load",
    "load_catalogs",
    "unmatched",
]
