# SPDX-License-Identifier: Apache-2.0
"""Where the kernels run in these tests: on the machine's device, or interpreted on the CPU.

Triton decides that when it and the kernels are first imported, by an environment variable. It is set for that moment
only, so that neither other tests nor the processes they start see it. To be imported before anything else that imports
triton, as `torch._dynamo` does.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

import numpy as np
import pytest
import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def _import_kernels() -> None:
    before = os.environ.get("TRITON_INTERPRET")
    if DEVICE == "cpu":
        if "triton" in sys.modules and before != "1":
            raise pytest.UsageError("triton was imported before tests/kernels could ask it to interpret")
        os.environ["TRITON_INTERPRET"] = "1"
    try:
        importlib.import_module("triton.experimental.gluon")  # else imported, and asked again, at the first launch
        from turbo_hydra.kernels import STEMS

        for stem in STEMS:
            if importlib.util.find_spec(f"turbo_hydra.kernels.{stem}") is not None:
                importlib.import_module(f"turbo_hydra.kernels.{stem}")
    finally:
        if DEVICE == "cpu":
            if before is None:
                del os.environ["TRITON_INTERPRET"]
            else:
                os.environ["TRITON_INTERPRET"] = before


def _round_to_nearest() -> None:
    """Let the interpreter of triton 3.6 write bf16 as devices do, which round to nearest; it cuts digits off."""
    from triton.runtime import interpreter

    original = interpreter._convert_float

    def convert(values: Any, source: Any, target: Any, mode: Any) -> Any:
        if (str(source), str(target)) == ("fp32", "bf16"):
            rounded = torch.from_numpy(np.array(values, dtype=np.float32)).to(torch.bfloat16)
            return rounded.view(torch.uint16).numpy()
        if (str(source), str(target)) == ("bf16", "fp32"):
            return np.array(values).astype(np.uint32) << 16
        return original(values, source, target, mode)

    interpreter._convert_float = convert


def _multiply_bf16() -> None:
    """Let the interpreter of triton 3.6 multiply matrices of bf16, which it holds as their bits."""
    from triton.runtime import interpreter

    original = interpreter.InterpreterBuilder.create_dot

    def widened(operand: Any) -> Any:
        if str(operand.dtype.scalar) != "bf16":
            return operand
        bits = np.array(operand.data).astype(np.uint32) << 16
        return interpreter.TensorHandle(bits.view(np.float32), interpreter.tl.float32)

    def dot(self: Any, a: Any, b: Any, *rest: Any) -> Any:
        return original(self, widened(a), widened(b), *rest)

    interpreter.InterpreterBuilder.create_dot = dot


def _let_tensors_count() -> None:
    """Let interpreted loops end at a loaded number: numpy 2.4 makes no integer of an array of one element."""
    from triton.runtime import interpreter

    original = interpreter._patch_lang_tensor

    def patch(tensor: Any, scope: Any) -> None:
        original(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    interpreter._patch_lang_tensor = patch


_import_kernels()
if DEVICE == "cpu":
    _round_to_nearest()
    _multiply_bf16()
    _let_tensors_count()
