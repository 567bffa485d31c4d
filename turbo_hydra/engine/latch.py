# SPDX-License-Identifier: Apache-2.0
"""State that a `runtime_condition` reads though it is no argument, such as the health of a kernel.

A condition that flips between a forward and its recomputation under activation checkpointing gives backward other
tensors than forward saved. So a change waits for the end of the step: the next return of an optimizer's `step()`, or
the end of the backward that it runs in.
"""

from __future__ import annotations

import logging
import sys
import threading
from typing import Any, Generic, TypeVar

_logger = logging.getLogger("turbo_hydra")
_T = TypeVar("_T")
_changing = threading.RLock()
_changed: dict[Latch[Any], Any] = {}


class Latch(Generic[_T]):
    """A value that stays what it is until the step ends.

    Parameters
    ----------
    name : str
        For the log: a change is told when it takes effect.
    value : object
        What it is at first. It must not be changed in place.

    Examples
    --------
    >>> healthy = Latch("the fused norm's health", True)
    >>> healthy.set(False)
    >>> healthy.value
    True
    >>> end_step()
    >>> healthy.value
    False
    """

    def __init__(self, name: str, value: _T) -> None:
        self.name = name
        self._value = value
        _Steps.watch()

    @property
    def value(self) -> _T:
        """The same within a step, whoever asks; `torch.compile` guards on it, so that a change compiles anew."""
        return self._value

    def set(self, value: _T) -> None:
        """Let it be `value` from the next step on; of several changes in a step the last counts."""
        with _changing:
            _changed[self] = value
        _Steps.watch()


def end_step() -> None:
    """Say that a step ends here: changes of latches take effect.

    Optimizers say so by themselves. A loop without one (an inference server) says it where no forward waits for its
    backward, such as between two requests.
    """
    with _changing:
        for latch, value in _changed.items():
            before, latch._value = latch._value, value
            if before != value:
                _logger.warning("%s is %r from this step on; it was %r", latch.name, value, before)
        _changed.clear()


class _Steps:
    """The hook on all optimizers of the process; put there once torch is loaded, and only where there is a latch."""

    watching = False

    @classmethod
    def watch(cls) -> None:
        optimizers: Any = sys.modules.get("torch.optim.optimizer")
        register = getattr(optimizers, "register_optimizer_step_post_hook", None)
        if register is None or cls.watching:
            return
        cls.watching = True
        register(_optimizer_stepped)


def _optimizer_stepped(optimizer: Any, args: Any, kwargs: Any) -> None:
    if not _changed:
        return
    torch: Any = sys.modules["torch"]
    if torch._C._current_graph_task_id() == -1:
        end_step()
    else:  # an optimizer that updates while backward runs: other layers have yet to be recomputed
        torch.autograd.Variable._execution_engine.queue_callback(end_step)
