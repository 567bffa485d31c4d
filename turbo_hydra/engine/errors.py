# SPDX-License-Identifier: Apache-2.0
"""What the engine raises; every message is one sentence that a user can act on."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from turbo_hydra.engine.report import OptimizationReport


class TurboHydraError(Exception):
    """Base of all errors that this package raises on purpose."""


class DeclarationError(TurboHydraError):
    """A catalog declares something that cannot be meant; the message names the catalog's file and line."""


class OptimizationConfigError(TurboHydraError):
    """The content of an optimization config, or an argument that selects from it, is wrong."""


class OptimizationConfigNotFoundError(OptimizationConfigError):
    """The optimization config that was asked for does not exist or cannot be read."""


class AlreadyAppliedError(TurboHydraError):
    """`apply()` was called a second time in one process."""


class OptimizationRollbackError(TurboHydraError):
    """A group failed and its sites could not be put back.

    Attributes
    ----------
    report : OptimizationReport
        What had been done by then; groups after the failed one are `not_started`.
    """

    def __init__(self, message: str, report: OptimizationReport) -> None:
        super().__init__(message)
        self.report = report


class StrictStop(TurboHydraError):
    """`strict` is set and an enabled group is not applied.

    Attributes
    ----------
    report : OptimizationReport
        The report of the attempt.
    """

    def __init__(self, message: str, report: OptimizationReport) -> None:
        super().__init__(message)
        self.report = report
