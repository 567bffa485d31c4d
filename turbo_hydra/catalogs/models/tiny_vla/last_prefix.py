# SPDX-License-Identifier: Apache-2.0
"""The last layer for the expert's tokens only."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

Forward = Callable[..., Any]


@dataclass(frozen=True)
class ExpertOnly:
    """Stands where a layer is given the rotary embedding, and tells it that only the expert's tokens are wanted."""

    rotary: Any


class _ZeroGradient(torch.autograd.Function):
    """Passes a tensor through and gives a parameter a gradient of zeros.

    The prefix's queries of the last layer are multiplied with nothing that is read, so upstream their weight gets zeros
    and the optimizer still decays it. Without this it would get None and stay as it is.
    """

    @staticmethod
    def forward(ctx: Any, passed: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(weight)
        return passed.view_as(passed)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor, Tensor]:
        (weight,) = ctx.saved_tensors
        return gradients[0], torch.zeros_like(weight)


def transformer_forward(original: Forward, options: None) -> Forward:
    """Factory for `tiny_vla.joint.JointTransformer.forward`."""
    joint = importlib.import_module("tiny_vla.joint")

    def forward(
        self: Any, prefix: Tensor, suffix: Tensor, mask: Tensor, position_ids: Tensor, condition: Tensor
    ) -> Tensor:
        last = len(self.layers) - 1
        for index, layer in enumerate(self.layers):
            rotary = ExpertOnly(self.rotary) if index == last else self.rotary
            if self.gradient_checkpointing:
                prefix, suffix = joint.checkpointed(layer, prefix, suffix, mask, position_ids, condition, rotary)
            else:
                prefix, suffix = layer(prefix, suffix, mask, position_ids, condition, rotary)
        output: Tensor = self.norm(suffix, condition)[0]
        return output

    return forward


def layer_forward(original: Forward, options: None) -> Forward:
    """Factory for `tiny_vla.joint.JointLayer.forward`; the prefix comes back as it was where it is not wanted."""
    joint = importlib.import_module("tiny_vla.joint")

    def forward(
        self: Any,
        prefix: Tensor,
        suffix: Tensor,
        mask: Tensor,
        position_ids: Tensor,
        condition: Tensor,
        rotary: Any,
    ) -> tuple[Tensor, Tensor]:
        if not isinstance(rotary, ExpertOnly):
            result: tuple[Tensor, Tensor] = original(self, prefix, suffix, mask, position_ids, condition, rotary)
            return result
        length = prefix.shape[1]
        _, prefix_k, prefix_v, _ = self.prefix.qkv(prefix, None)
        query, suffix_k, suffix_v, gate = self.expert.qkv(suffix, condition)
        cos, sin = rotary.rotary(query, position_ids)
        query, suffix_k = joint.apply_rotary(query, suffix_k, cos[:, length:], sin[:, length:])
        prefix_k, _ = joint.apply_rotary(prefix_k, prefix_k, cos[:, :length], sin[:, :length])
        key, value = torch.cat((prefix_k, suffix_k), dim=2), torch.cat((prefix_v, suffix_v), dim=2)
        attended = joint.eager_attention(query, key, value, mask[:, :, length:], self.scale)
        suffix = self.expert.finish(suffix, attended, gate, condition)
        suffix = _ZeroGradient.apply(suffix, self.prefix.q_proj.weight)  # type: ignore[no-untyped-call]
        return prefix, suffix

    return forward
