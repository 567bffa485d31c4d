# SPDX-License-Identifier: Apache-2.0
"""What `benchmarks.kernels` measures and `benchmarks.tune` tunes by: each kernel at the shapes of OpenPI's training.

PI0.5 at 32 samples a device: 968 tokens before the 10 of actions, 978 together; MLP width 16384, model width 2048, the
action expert's 1024; 768 image tokens of width 4304 inside SigLIP's MLP; 8 query heads over 1 of size 256.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import torch

BF16 = torch.bfloat16
Function = Callable[..., Any]


@dataclass(frozen=True)
class Case:
    """One kernel at one shape.

    Parameters
    ----------
    stem : str
        The kernel's name.
    shape : str
        As it is written into the results.
    inputs : callable
        Makes the leaves on the device.
    kernel, eager : callable
        Both sides; take the leaves.
    liger : callable, optional
        Gives Liger-Kernel's function, which takes the leaves; imported when it is called.
    forward_bytes, backward_bytes : int
        Compulsory: each input and each output once. No backward where `backward_bytes` is 0.
    others : dict
        More sides by name; take the leaves.
    forward_work, backward_work : int
        Operations of the matrix units, each product counted once; 0 where memory is the limit.
    tunes : tuple of (stem, kernel, shape class)
        Entries of the table that this case decides.
    compiled : bool
        Whether torch.compile's code of `eager` is a side.
    """

    stem: str
    shape: str
    inputs: Callable[[], list[torch.Tensor]]
    kernel: Function
    eager: Function
    forward_bytes: int
    backward_bytes: int = 0
    liger: Callable[[], Function] | None = None
    tunes: tuple[tuple[str, str, str], ...] = field(default=())
    compiled: bool = True
    others: dict[str, Function] = field(default_factory=dict)
    forward_work: int = 0
    backward_work: int = 0

    @property
    def name(self) -> str:
        """Stem and shape."""
        return f"{self.stem} {self.shape}"


def leaves(*shapes: Sequence[int], dtype: torch.dtype = BF16) -> list[torch.Tensor]:
    """Normally distributed numbers that need a gradient."""
    return [torch.randn(*shape, device="cuda", dtype=dtype).requires_grad_() for shape in shapes]


def stem(name: str) -> Any:
    """A kernel's module."""
    return import_module(f"turbo_hydra.kernels.{name}")


def _liger(module: str, function: str, *more: Any) -> Callable[[], Function]:
    def load() -> Function:
        apply = getattr(import_module(f"liger_kernel.ops.{module}"), function).apply
        return lambda *given: apply(*given, *more)

    return load


def gated() -> list[Case]:
    """The MLP's gate."""
    size = 32 * 968 * 16384
    geglu, swiglu = stem("geglu"), stem("swiglu")

    def inputs() -> list[torch.Tensor]:
        return leaves((32 * 968, 16384), (32 * 968, 16384))

    def case(name: str, kernel: Function, eager: Function, liger: Any, tunes: tuple[tuple[str, str, str], ...]) -> Case:
        return Case(name, "[30976, 16384] bf16", inputs, kernel, eager, 6 * size, 10 * size, liger, tunes)

    return [
        case(
            "geglu", geglu.geglu, geglu.geglu_plain, _liger("geglu", "LigerGELUMulFunction"),
            (("gated", "forward", "default"), ("gated", "backward", "default")),
        ),
        case(
            "geglu exact", lambda gate, up: geglu.geglu(gate, up, exact=True), geglu.geglu_plain, None,
            (("gated", "forward_exact", "default"), ("gated", "backward_exact", "default")),
        ),
        case("swiglu", swiglu.swiglu, swiglu.swiglu_plain, _liger("swiglu", "LigerSiLUMulFunction"), ()),
    ]  # fmt: skip


def bias() -> list[Case]:
    """SigLIP's MLP."""
    module, size = stem("gelu_tanh_bias"), 32 * 768 * 4304
    return [
        Case(
            "gelu_tanh_bias", "[24576, 4304] bf16", lambda: leaves((32 * 768, 4304), (4304,)),
            module.gelu_tanh_bias, module.gelu_tanh_bias_plain, 4 * size, 6 * size,
            tunes=(("gelu_tanh_bias", "forward", "default"), ("gelu_tanh_bias", "backward", "default")),
        )
    ]  # fmt: skip


def norms() -> list[Case]:
    """Gemma's norm, and the action expert's with its residual and gate, at its own length and as one of all tokens."""
    rms, ada = stem("rms_norm"), stem("ada_rms_norm")
    size = 32 * 968 * 2048
    cases = [
        Case(
            "rms_norm", "[30976, 2048] bf16", lambda: leaves((32 * 968, 2048), (2048,)),
            lambda x, weight: rms.rms_norm(x, weight, 1e-6, 1.0),
            lambda x, weight: rms.rms_norm_plain(x, weight, 1e-6, 1.0),
            4 * size, 6 * size, _liger("rms_norm", "LigerRMSNormFunction", 1e-6, 1.0, "gemma", False),
            (("ada_rms_norm", "forward", "width_2048"), ("ada_rms_norm", "backward", "width_2048")),
        )
    ]  # fmt: skip
    for length in (10, 978):
        shape = (32, length, 1024)
        count = 32 * length * 1024

        def inputs(shape: tuple[int, int, int] = shape) -> list[torch.Tensor]:
            return leaves(shape, (32, 1024), (32, 1024), shape, (32, 1024))

        cases.append(
            Case(
                "ada_rms_norm", f"[32, {length}, 1024] bf16, residual and gate", inputs,
                lambda x, scale, shift, residual, gate: ada.ada_rms_norm(x, scale, shift, 1e-6, residual, gate),
                lambda x, scale, shift, residual, gate: ada.ada_rms_norm_plain(x, scale, shift, 1e-6, residual, gate),
                8 * count, 12 * count,
                tunes=() if length == 10 else (
                    ("ada_rms_norm", "forward", "width_1024"), ("ada_rms_norm", "backward", "width_1024"),
                ),
            )
        )  # fmt: skip
    return cases


def rope() -> list[Case]:
    """Queries and keys as projections give them: heads beside each other."""
    module, size = stem("rope"), 32 * 978 * 9 * 256

    def inputs() -> list[torch.Tensor]:
        q, k = leaves((32, 978, 8, 256), (32, 978, 1, 256))
        cos, sin = (item.detach() for item in leaves((1, 978, 256), (1, 978, 256)))
        return [q.detach().transpose(1, 2).requires_grad_(), k.detach().transpose(1, 2).requires_grad_(), cos, sin]

    return [
        Case(
            "rope", "q [32, 8, 978, 256], k [32, 1, 978, 256] bf16", inputs, module.rope, module.rope_plain,
            4 * size, 4 * size, _liger("rope", "LigerRopeFunction"), (("rope", "rotate", "default"),),
        )
    ]  # fmt: skip


def softmax() -> list[Case]:
    """Attention's scores with the mask of the prefix, at the odd length and at the next even one."""
    module = stem("softmax")
    cases = []
    for length in (984, 978):
        size, mask_bytes = 32 * 8 * length**2, 4 * 32 * length**2
        odd = "" if length % 8 == 0 else "_odd"

        def inputs(length: int = length) -> list[torch.Tensor]:
            hidden = torch.rand(32, 1, 1, length, device="cuda") < 0.3
            mask = torch.where(hidden, -2.3819763e38, 0.0).expand(32, 1, length, length).contiguous()
            return [*leaves((32, 8, length, length)), mask]

        cases.append(
            Case(
                "softmax", f"[32, 8, {length}, {length}] bf16, float32 mask", inputs,
                lambda scores, mask: module.softmax(scores, mask, 0.0625),
                lambda scores, mask: module.softmax_plain(scores, mask, 0.0625),
                4 * size + mask_bytes, 6 * size,
                tunes=(("softmax", "forward", f"width_1024{odd}"), ("softmax", "backward", f"width_1024{odd}")),
            )
        )  # fmt: skip
    return cases


def pi05_sizes() -> list[int]:
    """Elements of PI0.5's bf16 parameters: Gemma 2B, the action expert of 300M and SigLIP; its norms are float32."""

    def gemma(width: int, mlp: int) -> list[int]:
        return [width * 2048, width * 256, width * 256, 2048 * width, *[width * mlp] * 3] * 18

    siglip = [1152 * 1152, 1152] * 4 + [1152 * 4304, 4304, 4304 * 1152, 1152] + [1152] * 4
    vision = siglip * 27 + [1152 * 3 * 14 * 14, 1152, 256 * 1152, 1152, 1152, 1152 * 2048, 2048]
    actions = [32 * 1024, 1024, 1024 * 32, 32, 1024 * 1024, 1024, 1024 * 1024, 1024]
    return [257152 * 2048, *gemma(2048, 16384), *gemma(1024, 4096), *vision, *actions]


CASES: tuple[Callable[[], list[Case]], ...] = (gated, bias, norms, rope, softmax)
