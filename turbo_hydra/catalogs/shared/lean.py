# SPDX-License-Identifier: Apache-2.0
"""Parts of a layer as one node of the graph each, in torch's own operations: for devices that kernels do not run on.

Written out, they are several nodes, each of which keeps its inputs. Here a few of the inputs are kept, and the rest is
computed again in the backward pass, which is one Python call.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional


class LeanNorm(torch.autograd.Function):
    """x * rsqrt(mean(x^2) + eps) * scale + shift over the last dimension; keeps x, scale and one number a row.

    `scale` is [width], or [batch, 1, width] as `shift` then is and x [batch, length, width]. Statistics and products
    are in float32 (float64 for float64), and the result has x's dtype.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: Tensor, shift: Tensor | None, eps: float) -> Tensor:
        """Compute the norm."""
        wide = torch.promote_types(x.dtype, torch.float32)
        norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=wide)
        inverse = norm.square_().div_(x.shape[-1]).add_(eps).rsqrt_()
        normed = x * inverse
        ctx.dtypes = (scale.dtype, None if shift is None else shift.dtype)
        scale = scale.to(wide)
        result = normed.mul_(scale) if shift is None else torch.addcmul(shift.to(wide), normed, scale)
        ctx.save_for_backward(x, inverse, scale)
        return result.to(x.dtype)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of x, scale and shift."""
        x, inverse, scale = ctx.saved_tensors
        of_x = of_scale = of_shift = None
        grad = grad.to(scale.dtype)
        normed = x * inverse
        one = scale.dim() == 1  # a scale for all rows
        rows = tuple(range(x.dim() - 1)) if one else (1,)
        product = grad * normed
        if ctx.needs_input_grad[1]:
            of_scale = product.sum(rows, keepdim=not one).to(ctx.dtypes[0])
        if ctx.needs_input_grad[2]:
            of_shift = grad.sum(rows, keepdim=not one).to(ctx.dtypes[1])
        if ctx.needs_input_grad[0]:
            through = product.mul_(scale).sum(-1, keepdim=True)  # no matrix product, which autocast would narrow
            of_x = (grad * scale).addcmul_(normed, through, value=-1.0 / x.shape[-1]).mul_(inverse).to(x.dtype)
        return of_x, of_scale, of_shift, None


class LeanGeglu(torch.autograd.Function):
    """gelu(gate, approximate="tanh") * up, rounded where the library rounds; keeps gate and up alone."""

    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor) -> Tensor:
        """Compute the product."""
        ctx.save_for_backward(gate, up)
        return functional.gelu(gate, approximate="tanh").mul_(up)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients of gate and up."""
        gate, up = ctx.saved_tensors
        of_gate = torch.ops.aten.gelu_backward(grad * up, gate, approximate="tanh")
        return of_gate, functional.gelu(gate, approximate="tanh").mul_(grad)
