# SPDX-License-Identifier: Apache-2.0
"""Layers under torch.compile, while they train."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from turbo_hydra import CompatibilityResult, fallback
from turbo_hydra.catalogs.models.tiny_vla.options import CompileLayer

Forward = Callable[..., Any]


def joint(original: Forward, options: CompileLayer) -> Forward:
    """Factory for `tiny_vla.joint.JointLayer.forward`."""
    return _compiled(original, options)


def vision(original: Forward, options: CompileLayer) -> Forward:
    """Factory for `tiny_vla.vision.VisionLayer.forward`."""
    return _compiled(original, options) if options.vision else original


def _compiled(original: Forward, options: CompileLayer) -> Forward:
    compiled = torch.compile(original, mode=options.mode, dynamic=False)

    @functools.wraps(original)
    def forward(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        if not self.training:
            # Evaluation comes with shapes of its own, each of which would be compiled for a few calls.
            fallback("evaluation")
            return original(self, *args, **kwargs)
        return compiled(self, *args, **kwargs)

    return forward


def check(context: Any) -> CompatibilityResult:
    """Whether something is there that compiles: Triton for a GPU, a C++ compiler for the CPU."""
    if torch.cuda.is_available():
        from torch.utils._triton import has_triton

        return CompatibilityResult(has_triton(), "torch.compile needs triton for the GPU; install it")
    from torch._inductor.cpp_builder import get_cpp_compiler

    try:
        get_cpp_compiler()
    except Exception as error:
        return CompatibilityResult(False, f"torch.compile needs a C++ compiler for the CPU: {error}")
    return CompatibilityResult(True)
