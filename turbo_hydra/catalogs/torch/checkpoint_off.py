# SPDX-License-Identifier: Apache-2.0
"""Activations are kept instead of computed a second time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from turbo_hydra import fallback
from turbo_hydra.catalogs.torch.options import CheckpointOff

# Arguments of `checkpoint` itself, in all versions; others are the function's.
_OWN = frozenset(
    {
        "use_reentrant",
        "context_fn",
        "determinism_check",
        "debug",
        "early_stop",
        "preserve_rng_state",
        "respect_saved_tensors_hooks",
    }
)


def checkpoint(original: Callable[..., Any], options: CheckpointOff) -> Callable[..., Any]:
    """Factory for `torch.utils.checkpoint.checkpoint`."""

    def checkpoint(*args: Any, **kwargs: Any) -> Any:
        reason = _unfit(args, kwargs, options)
        if reason is not None:
            fallback(reason)
            return original(*args, **kwargs)
        function, *inputs = args
        return function(*inputs, **{name: value for name, value in kwargs.items() if name not in _OWN})

    return checkpoint


def _unfit(args: tuple[Any, ...], kwargs: dict[str, Any], options: CheckpointOff) -> str | None:
    """Why this call stays checkpointed; None if it does not."""
    if not args or not callable(args[0]):
        return "no function given by position"
    if "context_fn" in kwargs:
        return "what is kept is chosen by a context"
    inputs = args[1:]
    if kwargs.get("use_reentrant") is not False and torch.is_grad_enabled():
        # The reentrant way gives gradients only through tensors that are themselves arguments; without it they would
        # flow where they do not flow now.
        plain = all(isinstance(item, Tensor) or not isinstance(item, (list, tuple, dict)) for item in inputs)
        if not plain or not any(isinstance(item, Tensor) and item.requires_grad for item in inputs):
            return "reentrant, and gradients would flow otherwise"
    if options.keep_above:
        elements = [item.numel() for item in (*inputs, *kwargs.values()) if isinstance(item, Tensor)]
        if max(elements, default=0) > options.keep_above:
            return "larger than keep_above"
    return None
