# SPDX-License-Identifier: Apache-2.0
"""Which parts of PI0 and PI0.5 are computed a second time in the backward pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from turbo_hydra import fallback
from turbo_hydra.catalogs.models.lerobot.options import Checkpoint

Function = Callable[..., Any]

_MODULES = ("lerobot.policies.pi0.modeling_pi0", "lerobot.policies.pi05.modeling_pi05")
# What lerobot checkpoints, by the name of the function that it hands over.
_LAYER, _WHOLE, _IMAGES = "compute_layer_complete", "forward_func", "image_embed_func"
# Arguments of `checkpoint` itself; others are the function's.
_OWN = frozenset({"use_reentrant", "preserve_rng_state", "context_fn", "determinism_check", "debug", "early_stop"})


def checkpoint(original: Function, options: Checkpoint) -> Function:
    """Factory for `torch.utils.checkpoint.checkpoint`.

    Of lerobot's calls those stay that the options name; the others (final norms, projections of actions and time, the
    embedding of tokens) keep little and are never checkpointed. Calls of other code stay as they are.
    """
    stride = options.layer_stride
    if stride < 0:
        raise ValueError(f"lerobot.checkpoint: layer_stride must be 0 or more, found {stride}")

    def checkpoint(function: Function, *args: Any, **kwargs: Any) -> Any:
        if getattr(function, "__module__", None) not in _MODULES:
            fallback("not of PI0 or PI0.5")
            return original(function, *args, **kwargs)
        name = function.__name__
        if name == _LAYER:
            kept = stride > 0 and _index(args, kwargs) % stride == 0
        else:
            kept = (name == _WHOLE and options.whole) or (name == _IMAGES and options.images)
        if kept:
            return original(function, *args, **kwargs)
        return function(*args, **{key: value for key, value in kwargs.items() if key not in _OWN})

    return checkpoint


def _index(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """The number of the layer: lerobot 0.4 hands it over, later releases hand over the layer."""
    first = args[0]
    index = first if isinstance(first, int) else kwargs["layers"][0].self_attn.layer_idx
    return int(index)
