# SPDX-License-Identifier: Apache-2.0
"""Which attention models use, chosen where the library chooses it."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

from turbo_hydra import fallback
from turbo_hydra.catalogs.transformers.options import Attention

# A class that has none of these names, in whatever version, does not support it.
_FLAGS = {
    "sdpa": ("_supports_sdpa",),
    "flex_attention": ("_supports_flex_attn",),
    "flash_attention_2": ("_supports_flash_attn", "_supports_flash_attn_2"),
}
_PACKAGES = {"flash_attention_2": "flash_attn"}


def init(original: Callable[..., None], options: Attention) -> Callable[..., None]:
    """Factory for `PreTrainedModel.__init__`, which every model calls before it makes its layers.

    The original settles what the model would use, and writes it into the config, which the layers read at each call.
    Parts of a model that have configs of their own come here by themselves.
    """

    def __init__(self: Any, config: Any, *inputs: Any, **kwargs: Any) -> None:
        original(self, config, *inputs, **kwargs)
        reason = _unfit(type(self), self.config._attn_implementation, options)
        if reason is not None:
            fallback(reason)
            return
        self.config._attn_implementation_internal = options.implementation

    return __init__


def _unfit(model: type, found: Any, options: Attention) -> str | None:
    """Why a model keeps what it has; None if it gets what is asked for."""
    wanted = options.implementation
    if found == wanted:
        return "what is asked for already"
    if found not in options.instead_of:
        return "another implementation than those to be replaced"
    if wanted in _FLAGS and not any(getattr(model, name, False) for name in _FLAGS[wanted]):
        return "a model that does not support it"
    if wanted in _PACKAGES and importlib.util.find_spec(_PACKAGES[wanted]) is None:
        return f"{_PACKAGES[wanted]} is not installed"
    return None
