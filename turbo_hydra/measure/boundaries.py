# SPDX-License-Identifier: Apache-2.0
"""Which update of an optimizer ends a training step.

The script says neither what a step is nor where it ends; what can be seen of it are its calls of `backward()`, the
returns of its optimizers' `step()` and of `GradScaler.step()`. The first update after a backward ends the step; the
updates after it, until the next backward, belong to the same step (a second optimizer, one optimizer for each parameter
that updates while backward runs, an optimizer that wraps another). The next forward is recognised by its backward: a
hook on forward itself would sit on every submodule of the model and take each off torch's fast path.
"""

from __future__ import annotations


class StepBoundaries:
    """Tells for each update whether it ends a step.

    Parameters
    ----------
    every : int
        Number of such ends that make one step (`measure.step_every`).
    """

    def __init__(self, every: int = 1) -> None:
        self._every = every
        self._ends = 0
        self._backward_seen = False
        self._updated: set[int] = set()

    def backward(self) -> None:
        """Note the start of an outermost backward."""
        self._backward_seen = True

    def optimizer(self, key: int) -> bool:
        """Note the return of an optimizer's `step()`; True if it ends a step.

        An optimizer that updates again without any backward (evolution strategies, gradients from `autograd.grad`)
        must be in a new step.
        """
        if self._backward_seen or not self._updated or key in self._updated:
            self._updated = {key}
            return self._end()
        self._updated.add(key)
        return False

    def scaler(self) -> bool:
        """Note the return of `GradScaler.step()`; True if it ends a step, which it does when it skipped the update."""
        return self._end() if self._backward_seen else False

    def _end(self) -> bool:
        self._backward_seen = False
        self._ends += 1
        return self._ends % self._every == 0
