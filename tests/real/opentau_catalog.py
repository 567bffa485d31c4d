# SPDX-License-Identifier: Apache-2.0
"""A catalog for opentau, for test_opentau.py: one group on its own code, and some on what it changes in transformers.

The first leads to opentau, which is imported for it and has changed transformers before the others find their targets.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from turbo_hydra import group, wrap

_HERE = "opentau_catalog"
_GEMMA = "transformers.models.gemma.modeling_gemma"
_SIGLIP = "transformers.models.siglip.modeling_siglip"

group("opentau.rope", wrap("opentau.policies.pi05.paligemma_with_expert.apply_rope", f"{_HERE}.through"))
group("opentau.layer", wrap(f"{_GEMMA}.GemmaDecoderLayer.__init__", f"{_HERE}.through"))
group("opentau.tower", wrap(f"{_SIGLIP}.SiglipVisionTransformer.forward", f"{_HERE}.through"))


def through(original: Callable[..., Any], options: None) -> Callable[..., Any]:
    """The original, called from another place."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return original(*args, **kwargs)

    return call
