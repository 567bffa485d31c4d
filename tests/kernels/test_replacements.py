# SPDX-License-Identifier: Apache-2.0
"""Replacements that catalogs share, where their kernels run: by the models' own formulas, and without falling back."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.kernels.closeness import hold, normal
from turbo_hydra.catalogs.shared import gated_mlp, gelu_mlp, rms_norm, rotary

DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
Plain = Callable[..., Any]


class GELUTanh(nn.Module):
    """Named as the library's."""

    def forward(self, x: Tensor) -> Tensor:
        return F.gelu(x, approximate="tanh")


@pytest.fixture
def replaced(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any, Plain, str], Plain]:
    """Make a replacement from its factory; one that falls back is an error."""

    def refuse(reason: str) -> None:
        raise AssertionError(f"fell back: {reason}")

    def make(factory: Any, original: Plain, module: str) -> Plain:
        monkeypatch.setattr(f"turbo_hydra.catalogs.shared.{module}.fallback", refuse)
        made: Plain = factory(original, None)
        return made

    return make


def normed(x: Tensor, eps: float = 1e-6) -> Tensor:
    wide = x if x.dtype == torch.float64 else x.float()
    return wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)


def gemma(self: Any, x: Tensor) -> Tensor:
    wide = normed(x)
    result: Tensor = (wide * (1.0 + self.weight.to(wide.dtype))).type_as(x)
    return result


def llama(self: Any, hidden_states: Tensor) -> Tensor:
    result: Tensor = self.weight * normed(hidden_states).to(hidden_states.dtype)
    return result


@DTYPES
@pytest.mark.parametrize("form", [gemma, llama])
def test_norms(replaced: Any, draw: torch.Generator, form: Plain, dtype: torch.dtype) -> None:
    forward = replaced(getattr(rms_norm, form.__name__), form, "rms_norm")
    x, weight = normal(draw, 2, 3, 24, dtype=dtype), normal(draw, 24, dtype=dtype, scale=0.3)

    def module(weight: Tensor) -> Any:
        return SimpleNamespace(weight=weight, eps=1e-6, variance_epsilon=1e-6)

    hold(lambda x, w: forward(module(w), x), lambda x, w: form(module(w), x), [x, weight], factor=2.0)


def rotate(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, unsqueeze_dim: int = 1) -> tuple[Tensor, Tensor]:
    cos, sin = cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim)

    def half(x: Tensor) -> Tensor:
        first, second = x.chunk(2, dim=-1)
        return torch.cat((-second, first), dim=-1)

    return q * cos + half(q) * sin, k * cos + half(k) * sin


@DTYPES
def test_rotations(replaced: Any, draw: torch.Generator, dtype: torch.dtype) -> None:
    apply = replaced(rotary.apply, rotate, "rotary")
    # As models have them: [batch, length, heads, size] seen as [batch, heads, length, size].
    q, k = (normal(draw, 2, 5, heads, 8, dtype=dtype) for heads in (4, 2))
    angles = torch.linspace(0, 3, 20, device=draw.device).view(1, 5, 4).repeat(1, 1, 2)
    cos, sin = angles.cos().to(dtype), angles.sin().to(dtype)

    def with_heads_first(function: Plain) -> Plain:
        return lambda q, k, cos, sin: function(q.transpose(1, 2), k.transpose(1, 2), cos, sin)

    hold(with_heads_first(apply), with_heads_first(rotate), [q, k, cos, sin])


@DTYPES
@pytest.mark.parametrize("activation", [GELUTanh(), nn.SiLU()], ids=["GeGLU", "SwiGLU"])
def test_gates(replaced: Any, draw: torch.Generator, activation: nn.Module, dtype: torch.dtype) -> None:
    def plain(self: Any, x: Tensor) -> Tensor:
        result: Tensor = self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))
        return result

    forward = replaced(gated_mlp.forward, plain, "gated_mlp")

    def module(*weights: Tensor) -> Any:
        gate, up, down = (lambda x, w=w: F.linear(x, w) for w in weights)
        return SimpleNamespace(gate_proj=gate, up_proj=up, down_proj=down, act_fn=activation)

    weights = [normal(draw, *shape, dtype=dtype, scale=0.3) for shape in ((12, 8), (12, 8), (8, 12))]
    leaves = [normal(draw, 3, 8, dtype=dtype), *weights]
    hold(lambda x, *w: forward(module(*w), x), lambda x, *w: plain(module(*w), x), leaves, factor=2.0)


def test_bias_and_gelu(replaced: Any, draw: torch.Generator) -> None:
    def plain(self: Any, hidden_states: Tensor) -> Tensor:
        result: Tensor = self.fc2(self.activation_fn(self.fc1(hidden_states)))
        return result

    forward = replaced(gelu_mlp.forward, plain, "gelu_mlp")
    torch.manual_seed(0)
    first, second = (nn.Linear(*shape, device=draw.device) for shape in ((8, 12), (12, 8)))
    module = SimpleNamespace(activation_fn=GELUTanh(), fc1=first, fc2=second)
    results = []
    for function in (plain, forward):
        x = normal(torch.Generator(draw.device).manual_seed(2), 2, 3, 8)
        loss = function(module, x).square().sum()
        results.append(torch.autograd.grad(loss, [x, first.weight, first.bias, second.weight]))
    for found, expected in zip(*reversed(results), strict=True):
        torch.testing.assert_close(found, expected)
