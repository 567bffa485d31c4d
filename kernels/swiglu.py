# SPDX-License-Identifier: Apache-2.0
"""SwiGLU: silu(gate) * up."""

from __future__ import annotations

import torch

from .gated import activate, gated
from .geglu import unfit


def swiglu_plain(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """The library's path; the reference where the tensors are float64."""
    return activate("silu", gate) * up


def swiglu(gate: torch.Tensor, up: torch.Tensor, exact: bool = False) -> torch.Tensor:
    """silu(gate) * up; shapes, dtypes, `exact` and the backward as `geglu`.

    Parameters
    ----------
    gate, up : Tensor
        [..., width], of one shape and one floating dtype.
    exact : bool
        For bf16: bitwise the library's result and gradients, by a table.

    Returns
    -------
    Tensor
        [..., width], contiguous, of the same dtype. The library's path where `unfit` gives a reason.
    """
    if unfit(gate, up, exact) is not None:
        return swiglu_plain(gate, up)
    out: torch.Tensor = gated(gate, up, "silu", exact)
    return out


__all__ = ["swiglu", "swiglu_plain", "unfit"]
