# SPDX-License-Identifier: Apache-2.0
"""Triton where it is there, and a stand-in that lets the kernels' modules be imported where it is not.

`TRITON_INTERPRET=1`, which triton reads where a kernel is defined, runs the kernels on a CPU, slowly: for tests.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch

from .usable import unusable

_HERE = unusable(device=False) is None
triton: Any = import_module("triton") if _HERE else None
tl: Any = import_module("triton.language") if _HERE else None


def _annotated(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Give a kernel's module triton's own type for `Any`: for a device, annotations are looked up in it."""
    kernel.__globals__["Any"] = tl.tensor
    return kernel


def jit(kernel: Callable[..., Any]) -> Any:
    """Triton's `jit`, or the function as it is where there is no triton; it is then never called."""
    return kernel if triton is None else triton.jit(_annotated(kernel))


def jit_unspecialized(*names: str) -> Callable[[Callable[..., Any]], Any]:
    """`jit` for a kernel with integers that change at each call: it is not compiled anew for 1 or multiples of 16."""
    return lambda kernel: kernel if triton is None else triton.jit(_annotated(kernel), do_not_specialize=list(names))


@jit
def _probe() -> None:
    pass


INTERPRETED = type(_probe).__name__ == "InterpretedFunction"
# Types of the devices whose tensors a kernel takes: constants, so that code which torch.compile traces may ask.
DEVICE_TYPES: tuple[str, ...] = () if triton is None else ("cuda", "cpu") if INTERPRETED else ("cuda",)


def cdiv(a: int, b: int) -> int:
    """Smallest integer not below a / b."""
    return -(-a // b)


def power_of_two(number: int) -> int:
    """Smallest power of two not below `number`, which is at least 1."""
    return 1 << (number - 1).bit_length()


def unfit(*tensors: torch.Tensor) -> str | None:
    """Why no kernel can take these tensors whatever their shapes, None where one can.

    Looks at devices, dtypes and layouts only, and is traced by torch.compile without a break.
    """
    for tensor in tensors:
        if tensor.device.type not in DEVICE_TYPES:
            return f"no kernel for tensors on {tensor.device.type}"
        if tensor.device != tensors[0].device:
            return "tensors on different devices"
        if not tensor.dtype.is_floating_point or tensor.layout != torch.strided:
            return "no kernel for this dtype or layout"
    return None


def accumulator(dtype: torch.dtype) -> Any:
    """Triton's type that a kernel computes in: float64 for float64, float32 for all others."""
    return tl.float64 if dtype == torch.float64 else tl.float32


def accumulates(dtype: torch.dtype) -> torch.dtype:
    """The same as a torch dtype, for buffers that hold sums."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def on(device: torch.device) -> contextlib.AbstractContextManager[object]:
    """Makes a tensor's device the current one, which is where triton launches."""
    return torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext()
