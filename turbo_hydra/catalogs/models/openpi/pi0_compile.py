# SPDX-License-Identifier: Apache-2.0
"""PI0's two large regions under torch.compile, with their activations kept."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import torch
import torch._functorch.config as functorch
import torch.nn.functional as F
from torch import Tensor
from torch._inductor import list_mode_options

from turbo_hydra import CompatibilityResult, fallback
from turbo_hydra.catalogs.models.openpi.options import Pi0Compile
from turbo_hydra.catalogs.shared import kept_activations

Function = Callable[..., Any]

_logger = logging.getLogger("turbo_hydra")
# What upstream writes where a token may not attend; softmax makes an exact zero of it.
_MASKED = -2.3819763e38
# Upstream's local functions that are regions, and what they are called in the log.
_REGIONS = {"forward_func": "joint forward", "image_embed_func": "image encoder"}


def apply_checkpoint(original: Function, options: Pi0Compile) -> Function:
    """Factory for `PI0Pytorch._apply_checkpoint`, through which all parts of the model are called."""
    compiled: dict[str, Function] = {}
    if options.mode != "none":
        inductor = _inductor_options(options.mode)
        # A function of its own for each: Dynamo counts the versions of a function's code, and has a limit.
        if options.forward_region:
            compiled["forward_func"] = torch.compile(_joint_forward, options=inductor, dynamic=False)
        if options.image_region:
            compiled["image_embed_func"] = torch.compile(_image_encoder, options=inductor, dynamic=False)
    budgets = {"forward_func": options.memory_budget, "image_embed_func": options.image_memory_budget}
    for option, budget in zip(("memory_budget", "image_memory_budget"), budgets.values(), strict=True):
        if not 0.0 < budget <= 1.0:
            raise ValueError(f"openpi.pi0_compile: {option} must be more than 0 and at most 1, found {budget}")
    told: set[str] = set()

    def _apply_checkpoint(self: Any, func: Function, *args: Any, **kwargs: Any) -> Any:
        if not self.training or torch.compiler.is_compiling():
            # Sampling has shapes of its own, each of which would be compiled for few calls.
            fallback("not training, or compiled as a whole")
            return original(self, func, *args, **kwargs)
        name = getattr(func, "__name__", "")
        if name in _REGIONS and name not in told:
            told.add(name)
            _tell(name, options, compiled, budgets[name])
        if name == "forward_func" and (padded := _padded(args, options.multiple)) is not None:
            output = run(self, name, func, padded, kwargs)
            return output[:, : args[1].shape[1]]
        return run(self, name, func, args, kwargs)

    def run(self: Any, name: str, func: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        region = compiled.get(name)
        function = func if region is None else _called_by(region, func, budgets[name])
        if options.checkpoint == "upstream":
            return original(self, function, *args, **kwargs)
        return function(*args, **kwargs)

    return _apply_checkpoint


def _joint_forward(func: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return func(*args, **kwargs)


def _image_encoder(func: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return func(*args, **kwargs)


def _inductor_options(mode: str) -> dict[str, Any]:
    """What a mode of torch.compile stands for, and rows without padding.

    By default Inductor makes rows of a result longer, to a multiple of 128 bytes, such as SigLIP's of 4304 elements. A
    product can add its bias itself only into a result without gaps; else the bias is first written there in full.
    """
    return {**list_mode_options(mode), "comprehensive_padding": False}


def _called_by(region: Function, func: Function, memory_budget: float) -> Function:
    """`func` in a compiled region, in one graph also below DistributedDataParallel."""

    def call(*args: Any, **kwargs: Any) -> Any:
        # Dynamo splits the graphs of a module under DDP where its buckets end. These regions are a part of that module
        # only, and their gradients come bucket by bucket all the same.
        settings = torch._dynamo.config.patch(optimize_ddp=False)
        # What is kept is decided when the region is compiled, and by default for time alone: also what an elementwise
        # pass would give again.
        kept = functorch.patch(**kept_activations.settings(memory_budget))
        with settings, kept:
            return region(func, args, kwargs)

    return call


def _padded(args: tuple[Any, ...], multiple: int) -> tuple[Any, ...] | None:
    """The arguments of the joint forward with masked tokens at the end; None where the length fits, or is unknown.

    Matrix products of a length that is no multiple of 8 take slow kernels. A token that none attends to has no weight
    in any other token, and its own output is dropped, so that no gradient comes from it.
    """
    if len(args) != 5 or multiple < 2:
        return None
    prefix, suffix, mask, position_ids, condition = args
    if not all(isinstance(item, Tensor) and item.dim() == 3 for item in (prefix, suffix)):
        return None
    length = prefix.shape[1] + suffix.shape[1]
    missing = -length % multiple
    if missing == 0 or not isinstance(mask, Tensor) or not isinstance(position_ids, Tensor):
        return None
    if not mask.is_floating_point() or mask.requires_grad or mask.shape[-2:] != (length, length):
        return None
    return (
        prefix,
        F.pad(suffix, (0, 0, 0, missing)),
        F.pad(mask, (0, missing, 0, missing), value=_MASKED),
        F.pad(position_ids, (0, missing)),
        condition,
    )


def _tell(name: str, options: Pi0Compile, compiled: dict[str, Function], budget: float) -> None:
    how = "not compiled"
    if name in compiled:
        how = f"compiled (mode {options.mode}, memory budget {budget:g})"
    kept = "no outer checkpoint" if options.checkpoint == "direct" else "upstream's outer checkpoint"
    _logger.info("openpi.pi0_compile: %s: %s, %s", _REGIONS[name], how, kept)


def check(context: Any) -> CompatibilityResult:
    """Whether something is there that compiles: Triton for a GPU, a C++ compiler for the CPU."""
    if context.options is not None and context.options.mode == "none":
        return CompatibilityResult(True)
    if torch.cuda.is_available():
        from torch.utils._triton import has_triton

        return CompatibilityResult(
            has_triton(), "torch.compile needs triton for the GPU; install it, or set mode: none"
        )
    from torch._inductor.cpp_builder import get_cpp_compiler

    try:
        get_cpp_compiler()
    except Exception as error:
        return CompatibilityResult(
            False, f"torch.compile needs a C++ compiler for the CPU: {error}; install one, or set mode: none"
        )
    return CompatibilityResult(True)
