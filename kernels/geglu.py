# SPDX-License-Identifier: Apache-2.0
"""GeGLU with the tanh form of GELU: gelu(gate) * up."""

from __future__ import annotations

import torch

from . import language
from .gated import activate, gated


def geglu_plain(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """The library's path; the reference where the tensors are float64."""
    return activate("gelu_tanh", gate) * up


def unfit(gate: torch.Tensor, up: torch.Tensor, exact: bool = False) -> str | None:
    """Why the kernel does not take these tensors, None where it does."""
    if gate.shape != up.shape or gate.dtype != up.dtype:
        return "gate and up differ in shape or dtype"
    if exact and gate.dtype != torch.bfloat16:
        return "the table is for bf16 only"
    return language.unfit(gate, up)


def geglu(gate: torch.Tensor, up: torch.Tensor, exact: bool = False) -> torch.Tensor:
    """gelu(gate, approximate="tanh") * up, one pass; its backward is one pass too and keeps gate and up only.

    Parameters
    ----------
    gate, up : Tensor
        [..., width], of one shape and one floating dtype. Any strides; neighbouring elements of a row side by side cost
        no copy, so both halves of a [..., 2 * width] projection may be given.
    exact : bool
        For bf16: bitwise the library's result and gradients, by a table.

    Returns
    -------
    Tensor
        [..., width], contiguous, of the same dtype. The library's path where `unfit` gives a reason.
    """
    if unfit(gate, up, exact) is not None:
        return geglu_plain(gate, up)
    out: torch.Tensor = gated(gate, up, "gelu_tanh", exact)
    return out
