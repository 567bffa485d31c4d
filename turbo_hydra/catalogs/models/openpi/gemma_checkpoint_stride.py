# SPDX-License-Identifier: Apache-2.0
"""Which layers of the joint forward are computed a second time in the backward pass."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any

import torch

from turbo_hydra import fallback
from turbo_hydra.catalogs.models.openpi.options import GemmaCheckpointStride

Function = Callable[..., Any]

_logger = logging.getLogger("turbo_hydra")
_LAYER, _NORMS = "compute_layer_complete", "compute_final_norms"
_FORWARD = "PaliGemmaWithExpertModel.forward.<locals>"


def forward(original: Function, options: GemmaCheckpointStride) -> Function:
    """Factory for `PaliGemmaWithExpertModel.forward`.

    Upstream checkpoints all layers whenever the module's own `training` is true, and asks it for nothing else. With a
    stride of 0 it is false while the call lasts; the modules within keep theirs.
    """
    stride = options.layer_stride
    if stride < 0:
        raise ValueError(f"openpi.gemma_checkpoint_stride: layer_stride must be 0 or more, found {stride}")

    def forward(
        self: Any,
        attention_mask: Any = None,
        position_ids: Any = None,
        past_key_values: Any = None,
        inputs_embeds: Any = None,
        use_cache: Any = None,
        adarms_cond: Any = None,
    ) -> Any:
        arguments = (attention_mask, position_ids, past_key_values, inputs_embeds, use_cache, adarms_cond)
        if not self.training:
            fallback("not training")
            return original(self, *arguments)
        _tell(stride, torch.compiler.is_compiling())
        if stride != 0:
            return original(self, *arguments)
        self.training = False
        try:
            return original(self, *arguments)
        finally:
            self.training = True

    return forward


def checkpoint(original: Function, options: GemmaCheckpointStride) -> Function:
    """Factory for `torch.utils.checkpoint.checkpoint`: of the joint forward's layers every n-th goes through it."""
    stride = options.layer_stride
    if stride < 2:
        return original  # all layers or none: `forward` sees to it

    # Dynamo takes whatever stands at this place for the checkpoint that it knows, so that in a compiled region every
    # layer is checkpointed; `_tell` says so.
    @functools.wraps(original)
    def checkpoint(function: Function, *args: Any, **kwargs: Any) -> Any:
        if not _of_the_joint_forward(function):
            fallback("not a layer of the joint forward")
            return original(function, *args, **kwargs)
        if function.__name__ == _LAYER and args[0] % stride == 0:
            return original(function, *args, **kwargs)
        kwargs = {name: value for name, value in kwargs.items() if name not in _SETTINGS}
        return function(*args, **kwargs)

    return checkpoint


# What upstream says to the checkpoint itself; anything else is the function's.
_SETTINGS = frozenset({"use_reentrant", "preserve_rng_state", "context_fn", "determinism_check", "debug", "early_stop"})


def _of_the_joint_forward(function: Any) -> bool:
    owner, _, name = getattr(function, "__qualname__", "").rpartition(".")
    return owner == _FORWARD and name in (_LAYER, _NORMS)


@functools.cache
def _say(text: str) -> None:
    _logger.info("openpi.gemma_checkpoint_stride: %s", text)


@torch._dynamo.assume_constant_result  # type: ignore[untyped-decorator]
def _tell(stride: int, compiled: bool) -> None:
    """One line for what really happens; a compiler runs this while it traces."""
    if stride == 0:
        _say("no layer of the joint forward is checkpointed")
    elif stride == 1 or compiled:
        _say("every layer of the joint forward is checkpointed" + (", as in any compiled region" if stride > 1 else ""))
    else:
        _say(f"layers 0, {stride}, {2 * stride}... of the joint forward are checkpointed")
