# SPDX-License-Identifier: Apache-2.0
"""RMS norm: `ada_rms_norm` with one learned scale for all rows."""

from __future__ import annotations

import torch

from .ada_rms_norm import ada_rms_norm, ada_rms_norm_plain, unfit


def rms_norm_plain(x: torch.Tensor, weight: torch.Tensor, eps: float, offset: float = 0.0) -> torch.Tensor:
    """The library's path; the reference where the tensors are float64."""
    return ada_rms_norm_plain(x, weight, None, eps, offset=offset)[0]


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float, offset: float = 0.0) -> torch.Tensor:
    """X * rsqrt(mean(x^2) + eps) * (offset + weight), in float32, rounded to x's dtype at the end.

    Parameters
    ----------
    x : Tensor
        [..., width], floating, width at most 16,384.
    weight : Tensor
        [width], any floating dtype.
    eps : float
        Added to the mean square.
    offset : float
        1 for Gemma, whose weights are learned around 0.

    Returns
    -------
    Tensor
        Like x, contiguous. The library's path where `unfit` gives a reason.
    """
    return ada_rms_norm(x, weight, None, eps, offset=offset)[0]


__all__ = ["rms_norm", "rms_norm_plain", "unfit"]
