# SPDX-License-Identifier: Apache-2.0
"""Masks that are made of Python lists are copied to the device without waiting for it."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from turbo_hydra import fallback

Function = Callable[..., Any]


class _Unwaited(TorchFunctionMode):
    """Where this is entered, `torch.tensor` of a list waits for no device."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.tensor and len(args) == 1 and isinstance(args[0], list) and not kwargs.get("requires_grad"):
            device = kwargs.get("device")
            if device is not None and torch.device(device).type == "cuda":
                # The allocator of pinned memory keeps it until the copy is done.
                listed = torch.tensor(*args, **{**kwargs, "device": "cpu", "pin_memory": True})
                return listed.to(device, non_blocking=True)
        return func(*args, **kwargs)


_entered: ContextVar[Any] = ContextVar("unwaited", default=None)


def embed(original: Function, options: None) -> Function:
    """Factory for `PI0Pytorch.embed_prefix` and `embed_suffix`, which list for each token where attention ends.

    A copy from memory that is not pinned waits for all that is queued, which is the image encoder, so that the joint
    forward is queued on a device that has nothing left to do.
    """

    def embed(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not torch.cuda.is_available() or torch.compiler.is_compiling():
            fallback("no CUDA device, or compiled as a whole")
            return original(self, *args, **kwargs)
        with _Unwaited() as mode:
            token = _entered.set(mode)
            try:
                return original(self, *args, **kwargs)
            finally:
                _entered.reset(token)

    return embed


def apply_checkpoint(original: Function, options: None) -> Function:
    """Factory for `PI0Pytorch._apply_checkpoint`, through which each part of the model is called.

    Parts make no such lists, and are compiled as they are called elsewhere.
    """

    def _apply_checkpoint(self: Any, func: Function, *args: Any, **kwargs: Any) -> Any:
        mode = _entered.get()
        if mode is None:
            fallback("outside of embed_prefix and embed_suffix")
            return original(self, func, *args, **kwargs)
        mode.__exit__(None, None, None)
        try:
            return original(self, func, *args, **kwargs)
        finally:
            mode.__enter__()

    return _apply_checkpoint
