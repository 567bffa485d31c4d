# SPDX-License-Identifier: Apache-2.0
"""Run by test_compiles in a process of its own: `python compiling.py sm_90 STEM...`.

Calls the kernels with tensors on the CPU and lets triton compile each launch for a device that is not there, and not
run it. Prints what was compiled, as JSON: the kernel's name, bytes of shared memory, and its assembly.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget

BF16 = torch.bfloat16
TARGETS = {"sm_90": ("cuda", 90, 32), "gfx942": ("hip", "gfx942", 64)}


class Absent:
    """A device as far as the compiler asks; nothing can run on it."""

    def __init__(self, target: Any) -> None:
        self._target = target

    def get_current_target(self) -> Any:
        return self._target

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")


def leaf(*shape: int, dtype: torch.dtype = BF16) -> torch.Tensor:
    """Numbers that need a gradient."""
    return torch.randn(shape, dtype=dtype).requires_grad_()


def backward(outputs: torch.Tensor | tuple[torch.Tensor, ...]) -> None:
    """Differentiate all of them."""
    given = outputs if isinstance(outputs, tuple) else (outputs,)
    torch.autograd.backward(given, [torch.ones_like(item) for item in given])


def geglu() -> None:
    from turbo_hydra.kernels.geglu import geglu

    for exact in (False, True):
        backward(geglu(leaf(4, 4096), leaf(4, 4096), exact))
    gate, up = leaf(3, 66, dtype=torch.float32).chunk(2, dim=-1)
    backward(geglu(gate, up))


def swiglu() -> None:
    from turbo_hydra.kernels.swiglu import swiglu

    backward(swiglu(leaf(4, 4096), leaf(4, 4096)))


def gelu_tanh_bias() -> None:
    from turbo_hydra.kernels.gelu_tanh_bias import gelu_tanh_bias

    backward(gelu_tanh_bias(leaf(64, 4304), leaf(4304)))


def rms_norm() -> None:
    from turbo_hydra.kernels.rms_norm import rms_norm

    backward(rms_norm(leaf(64, 2048), leaf(2048), 1e-6, 1.0))
    backward(rms_norm(leaf(3, 77, dtype=torch.float32), leaf(77), 1e-6))


def ada_rms_norm() -> None:
    from turbo_hydra.kernels.ada_rms_norm import ada_rms_norm

    all_three = leaf(2, 1, 3072, dtype=torch.float32)
    scale, shift, gate = all_three.chunk(3, dim=-1)
    backward(ada_rms_norm(leaf(2, 10, 1024), scale, shift, 1e-6, leaf(2, 10, 1024), gate))
    backward(ada_rms_norm(leaf(2, 10, 1024), leaf(1024), None, 1e-6, leaf(2, 10, 1024)))


def rope() -> None:
    from turbo_hydra.kernels.rope import rope

    q, k = leaf(2, 978, 8, 256).transpose(1, 2), leaf(2, 978, 1, 256).transpose(1, 2)
    cos = torch.randn(1, 978, 256)
    backward(rope(q, k, cos, cos))


def softmax() -> None:
    from turbo_hydra.kernels.softmax import softmax

    for keys in (978, 984):
        scores = leaf(1, 2, 3, keys)
        backward(softmax(scores, torch.zeros(1, 1, 3, keys), 0.0625))
        backward(softmax(scores, torch.ones(1, 1, 3, keys, dtype=torch.bool)))
    backward(softmax(leaf(1, 40000, dtype=torch.float32)))


def clip_norm() -> None:
    from turbo_hydra.kernels.clip_norm import clip_norm

    clip_norm([torch.randn(70001, dtype=BF16), torch.randn(5)], 1.0)


def adamw() -> None:
    from turbo_hydra.kernels.adamw import adamw

    hyper: dict[str, Any] = {"lr": 1e-3, "beta1": 0.9, "beta2": 0.95, "weight_decay": 0.1, "eps": 1e-8}
    for of_state in (BF16, torch.float32):
        lists = [[torch.zeros(70001, dtype=of)] for of in (BF16, BF16, of_state, of_state)]
        for seed in (None, 1):
            adamw(lists[0], lists[1], lists[2], lists[3], 1, factor=torch.ones(()), seed=seed, **hyper)


def prefix_attention() -> None:
    from turbo_hydra.kernels import configurations, prefix_attention_hopper
    from turbo_hydra.kernels.prefix_attention import prefix_attention

    # Once with the kernel that an sm_90 has, once with the one for all devices.
    known = vars(prefix_attention_hopper)
    for kind in (vars(configurations)["device_kind"], known["device_kind"]):
        known["device_kind"] = kind
        for width in (256, 64):
            query, key = leaf(1, 8, 33, width), leaf(1, 1, 33, width)
            backward(prefix_attention(query, key, key, torch.zeros(1, 1, 33, 33)))


def msda() -> None:
    from turbo_hydra.kernels.msda import msda

    for dtype, deterministic in ((torch.float32, False), (torch.float32, True), (BF16, False)):
        value, locations = leaf(1, 20, 8, 32, dtype=dtype), leaf(1, 6, 8, 2, 4, 2, dtype=torch.float32)
        weights = leaf(1, 6, 8, 2, 4, dtype=torch.float32)
        shapes, starts = torch.tensor([[2, 5], [5, 2]]), torch.tensor([0, 10])
        backward(msda(value, shapes, starts, locations, weights, deterministic))


def linear_cross_entropy() -> None:
    from turbo_hydra.kernels.linear_cross_entropy import linear_cross_entropy

    for smoothing in (0.0, 0.1):
        target = torch.zeros(4, dtype=torch.int64)
        backward(linear_cross_entropy(leaf(4, 8), leaf(32, 8), target, label_smoothing=smoothing))


CALLS: dict[str, Callable[[], None]] = {
    call.__name__: call
    for call in (
        geglu,
        swiglu,
        gelu_tanh_bias,
        rms_norm,
        ada_rms_norm,
        rope,
        softmax,
        clip_norm,
        adamw,
        prefix_attention,
        msda,
        linear_cross_entropy,
    )
}


def main() -> None:
    """Compile the stems named on the command line."""
    name, *stems = sys.argv[1:]
    triton.runtime.driver.set_active(Absent(GPUTarget(*TARGETS[name])))
    from turbo_hydra.kernels import configurations, device, language

    kind = device.KINDS[name]
    configurations.device_kind = lambda device: kind  # type: ignore[attr-defined]
    language.DEVICE_TYPES = ("cpu",)
    compiled = []
    run = triton.JITFunction.run

    def compile_only(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        kernel = run(self, *args, grid=grid, warmup=True, **kwargs)
        text = kernel.asm.get("ptx") or kernel.asm.get("amdgcn")
        of = {"shared": kernel.metadata.shared, "text": str(text), "ir": str(kernel.asm["ttgir"])}
        compiled.append({"kernel": self.fn.__name__, **of})
        return kernel

    triton.JITFunction.run = compile_only
    for stem in stems or CALLS:
        before = len(compiled)
        CALLS[stem]()
        for item in compiled[before:]:
            item["stem"] = stem
    sys.stdout.write(json.dumps(compiled) + "\n")


if __name__ == "__main__":
    main()
