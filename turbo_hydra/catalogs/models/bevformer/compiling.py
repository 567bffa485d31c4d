# SPDX-License-Identifier: Apache-2.0
"""Encoder layers and the decoder under torch.compile."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from turbo_hydra import CompatibilityResult
from turbo_hydra.catalogs.models.bevformer.options import Compile

if TYPE_CHECKING:
    from turbo_hydra import CheckContext

Function = Callable[..., Any]


def encoder_layer(original: Function, options: Compile) -> Function:
    """Factory for `BEVFormerLayer.forward`: a layer's graph ends where the hit queries are counted."""
    return _compiled(original, options)


def decoder(original: Function, options: Compile) -> Function:
    """Factory for `DetectionTransformerDecoder.forward`: all layers and the refinement of their boxes."""
    return _compiled(original, options)


def _compiled(original: Function, options: Compile) -> Function:
    function: Function = torch.compile(original, mode=options.mode, dynamic=options.dynamic)
    return function


def check(context: CheckContext) -> CompatibilityResult:
    """Whether something is there that compiles: Triton for a GPU, a C++ compiler for the CPU."""
    if torch.cuda.is_available():
        from torch.utils._triton import has_triton

        return CompatibilityResult(has_triton(), "torch.compile needs triton for the GPU; install it")
    from torch._inductor.cpp_builder import get_cpp_compiler

    try:
        get_cpp_compiler()
    except Exception as error:
        return CompatibilityResult(False, f"torch.compile needs a C++ compiler for the CPU: {error}; install one")
    return CompatibilityResult(True)
