# SPDX-License-Identifier: Apache-2.0
"""Groups for the benchmarks of OpenPI: random parameters and samples take seconds, not what is measured.

Both make other random numbers than OpenPI would, so that they are for measuring alone, on both sides.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from turbo_hydra import About, group, wrap

# What torch can do in another way, to the same result but for rounding: sums of bfloat16 products in float32
# throughout, products by cuBLASLt, the image encoder's attention by torch's flash kernel where cuDNN's is first choice.
Order = Literal["default", "sums", "products", "attention", "products+attention"]


@dataclass(frozen=True)
class Start:
    """Options of `start.on_device`."""

    order: Order = field(
        default="default", metadata={"help": "let torch add up in another order: the same training but for rounding"}
    )


group(
    "start.on_device",
    wrap("openpi.models_pytorch.pi0_pytorch.PI0Pytorch.__init__", "benchmarks.openpi_start.init"),
    depends_on=("openpi.transformers_replace",),
    options=Start,
    about=About(
        purpose="compatibility",
        why="Starting takes a minute of one core for random parameters; a measurement of steps can have them at once.",
        numerics="changes training",
        validated="torch 2.11, one H200",
    ),
)


group(
    "start.samples",
    wrap("openpi.training.data_loader.FakeDataset.__getitem__", "benchmarks.openpi_start.item", stack=True),
    about=About(
        purpose="compatibility",
        why="OpenPI draws each fake sample with JAX, on all cores, which costs more than to read a real one; a "
        "measurement of steps can have few samples again and again.",
        numerics="changes training",
        validated="torch 2.11, one H200",
    ),
)

# As many samples as a worker makes; the others are these again.
SAMPLES = 64


def item(original: Callable[[Any, Any], dict[str, Any]], options: None) -> Callable[[Any, Any], dict[str, Any]]:
    """Factory for `FakeDataset.__getitem__`."""
    made: dict[int, dict[str, Any]] = {}

    def __getitem__(self: Any, index: Any) -> dict[str, Any]:
        at = index.__index__() % SAMPLES
        if at not in made:
            made[at] = original(self, at)
        return dict(made[at])

    return __getitem__


def init(original: Callable[[Any, Any], None], options: Start) -> Callable[[Any, Any], None]:
    """Factory for `PI0Pytorch.__init__`."""
    import torch

    if options.order == "sums":
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    if "products" in options.order:
        torch.backends.cuda.preferred_blas_library("cublaslt")
    if "attention" in options.order:
        torch.backends.cuda.enable_cudnn_sdp(False)

    def __init__(self: Any, config: Any) -> None:
        with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
            original(self, config)

    return __init__
