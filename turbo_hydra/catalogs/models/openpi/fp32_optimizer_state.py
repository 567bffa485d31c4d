# SPDX-License-Identifier: Apache-2.0
"""AdamW's moments in float32 for parameters of lower precision, and the step computed in float32.

torch keeps both moments in the parameter's dtype. With bfloat16's eight bits, a second moment that should decay by a
thousandth a step does not move: the change is smaller than half its last place.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from turbo_hydra import fallback

LOW = (torch.bfloat16, torch.float16)
# Float32 copies of parameters and gradients that are there at a time.
PART_BYTES = 2**30


def init(original: Callable[..., None], options: None) -> Callable[..., None]:
    """Factory for `torch.optim.AdamW.__init__`."""

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        if self.defaults["differentiable"]:
            fallback("a differentiable step")
            return
        # On the instance: Dynamo gives each class of optimizers an `_init_group` of its own once something is compiled.
        self._init_group = functools.partial(_init_group, self)

    return __init__


def _init_group(self: Any, group: dict[str, Any], params_with_grad: list[Tensor], *lists: list[Tensor]) -> Any:
    """Make the state of parameters that have none and list it, as torch does; moments in float32."""
    result = type(self)._init_group(self, group, params_with_grad, *lists)
    for name, held in zip(("exp_avg", "exp_avg_sq", "max_exp_avg_sq"), lists[1:4], strict=True):
        for index, moment in enumerate(held):
            # New, or read from a checkpoint: `load_state_dict` gives state the parameter's dtype.
            if moment.dtype in LOW:
                held[index] = self.state[params_with_grad[index]][name] = moment.float()
    return result


def adam(original: Callable[..., None], options: None) -> Callable[..., None]:
    """Factory for `torch.optim.adam.adam`, which steps all parameters of a group."""

    def _adam(
        params: list[Tensor],
        grads: list[Tensor],
        exp_avgs: list[Tensor],
        exp_avg_sqs: list[Tensor],
        max_exp_avg_sqs: list[Tensor],
        state_steps: list[Tensor],
        *args: Any,
        **kwargs: Any,
    ) -> None:
        mixed = [index for index, item in enumerate(params) if exp_avgs[index].dtype is not item.dtype]
        if not mixed:
            original(params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps, *args, **kwargs)
            return
        alike = sorted(set(range(len(params))) - set(mixed))
        lists = (params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps)
        if alike:
            original(*([held[index] for index in alike] if held else [] for held in lists), *args, **kwargs)
        for part in _parts(mixed, params):
            wide = [params[index].float() for index in part]
            steep = [grads[index].float() for index in part]
            rest = ([held[index] for index in part] if held else [] for held in lists[2:])
            original(wide, steep, *rest, *args, **kwargs)
            torch._foreach_copy_([params[index] for index in part], wide)

    return _adam


def _parts(indices: Sequence[int], params: Sequence[Tensor]) -> Iterator[list[int]]:
    """Indices in their order, in parts whose float32 copies of parameter and gradient take at most `PART_BYTES`."""
    part: list[int] = []
    held = 0
    for index in indices:
        size = 8 * params[index].numel()
        if part and held + size > PART_BYTES:
            yield part
            part, held = [], 0
        part.append(index)
        held += size
    yield part
