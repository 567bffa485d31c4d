# SPDX-License-Identifier: Apache-2.0
"""Losses and gradient norms that are read when somebody needs their value, not when the script notes them.

OpenPI's script asks each step for `loss.item()` and `float(grad_norm)`, keeps both in a list until the log interval,
and shows the loss in its progress bar. Each of the three waits until the device has done all that is queued.
"""

from __future__ import annotations

import functools
import operator
from collections import deque
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from turbo_hydra import fallback

Function = Callable[..., Any]
_cuda: Any = torch.cuda


def forward(original: Function, options: None) -> Function:
    """Factory for `PI0Pytorch.forward`, whose losses, and their mean, give deferred numbers."""

    def forward(self: Any, observation: Any, actions: Any, noise: Any = None, time: Any = None) -> Any:
        losses = original(self, observation, actions, noise, time)
        if not self.training or type(losses) is not Tensor or torch.compiler.is_compiling():
            fallback("not training, or losses that are no plain tensor")
            return losses
        return losses.as_subclass(DeferredTensor)

    return forward


def clip(original: Function, options: None) -> Function:
    """Factory for `clip_grad_norm_`: the norm is a deferred number, which can be used where the tensor can."""

    @functools.wraps(original)
    def clip_grad_norm_(
        parameters: Any,
        max_norm: float,
        norm_type: float = 2.0,
        error_if_nonfinite: bool = False,
        foreach: bool | None = None,
    ) -> Any:
        norm = original(parameters, max_norm, norm_type, error_if_nonfinite, foreach)
        if type(norm) is not Tensor or norm.dim() or norm.requires_grad or torch.compiler.is_compiling():
            fallback("a norm that is no plain scalar")
            return norm
        return Deferred(norm, _norms)

    return clip_grad_norm_


class DeferredTensor(Tensor):
    """A tensor of which `item()` gives a deferred number; what is computed from it is like it."""

    def item(self) -> Any:
        """The value, once it is needed."""
        return Deferred(_plain(self.detach()), _losses)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Saved, it is a plain tensor."""
        return _plain(self).__reduce_ex__(protocol)


def _plain(tensor: Tensor) -> Tensor:
    with torch._C.DisableTorchFunctionSubclass():  # which would make a deferred tensor of the result
        return tensor.as_subclass(Tensor)


class Shown:
    """Of numbers of one kind that were shown as text, those that have yet to arrive, and the newest that has."""

    def __init__(self) -> None:
        self._coming: deque[Deferred] = deque(maxlen=16)
        self._newest: float | None = None

    def value(self, number: Deferred) -> float:
        """The newest number up to this one that is there; this one itself where none is."""
        self._coming.append(number)
        while self._coming and self._coming[0].arrived:
            self._newest = float(self._coming.popleft())
        return float(number) if self._newest is None else self._newest


_losses, _norms = Shown(), Shown()


class Deferred:
    """A number that is on its way from the device.

    As a float, in arithmetic and in comparisons it is the exact value, for which it may have to wait. As text alone, as
    a progress bar shows it, it is the newest number of its kind that has arrived: itself, or one of a step before.
    """

    def __init__(self, tensor: Tensor, shown: Shown) -> None:
        self.tensor = self._host = tensor.detach()
        self._shown, self._event = shown, None
        if tensor.device.type == "cuda":
            self._host = torch.empty((), dtype=tensor.dtype, pin_memory=True)
            self._host.copy_(self.tensor, non_blocking=True)
            self._event = _cuda.Event()
            self._event.record()

    @property
    def arrived(self) -> bool:
        """Whether the value is there without waiting."""
        return self._event is None or bool(self._event.query())

    def __float__(self) -> float:
        if self._event is not None:
            self._event.synchronize()
        return float(self._host)

    def __format__(self, spec: str) -> str:
        return format(self._shown.value(self), spec)

    def __repr__(self) -> str:
        return repr(float(self))

    def __bool__(self) -> bool:
        return bool(float(self))

    def __int__(self) -> int:
        return int(float(self))

    def __neg__(self) -> float:
        return -float(self)

    def __abs__(self) -> float:
        return abs(float(self))

    def __hash__(self) -> int:
        return hash(float(self))

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Saved or copied, it is a plain tensor, which `torch.load` takes from anyone."""
        return self.tensor.cpu().__reduce_ex__(protocol)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "tensor":
            raise AttributeError(name)
        return getattr(self.tensor, name)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Torch's functions take the tensor."""
        args, kwargs = tree_map(lambda item: item.tensor if isinstance(item, Deferred) else item, (args, kwargs or {}))
        return func(*args, **kwargs)


def _binary(name: str, function: Callable[[Any, Any], Any]) -> None:
    def number(value: Any) -> Any:
        return float(value) if isinstance(value, Deferred) else value

    setattr(Deferred, f"__{name}__", lambda self, other: function(float(self), number(other)))
    if name not in ("lt", "le", "gt", "ge", "eq", "ne"):
        setattr(Deferred, f"__r{name}__", lambda self, other: function(number(other), float(self)))


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "lt", "le", "gt", "ge", "eq", "ne"):
    _binary(_name, getattr(operator, _name))
