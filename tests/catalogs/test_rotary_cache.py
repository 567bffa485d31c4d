# SPDX-License-Identifier: Apache-2.0
"""Cosines and sines of one step: computed once, and read by every layer, compiled or not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, fx
from torch._dynamo.backends.common import aot_autograd
from torch._functorch._aot_autograd.utils import make_boxed_func
from torch._functorch.partitioners import min_cut_rematerialization_partition

from turbo_hydra.catalogs.shared import rotary_cache

LAYERS, LENGTH, WIDTH = 3, 5, 8


class Rotary:
    """An embedding as transformers has them, that counts how often it computes."""

    def __init__(self) -> None:
        self.inv_freq = torch.linspace(1.0, 0.01, WIDTH // 2)
        self.attention_scaling = 1.0
        self.times = 0

    def forward(self, x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        self.times += 1
        angles = position_ids[..., None].float() * self.inv_freq
        angles = torch.cat((angles, angles), dim=-1)
        return angles.cos().to(x.dtype), angles.sin().to(x.dtype)


@pytest.fixture(autouse=True)
def _fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def model(rotary: Rotary, forward: Any, x: Tensor, position_ids: Tensor, weight: Tensor) -> Tensor:
    for _ in range(LAYERS):
        cos, sin = forward(rotary, x, position_ids)
        x = ((x * cos + x.flip(-1) * sin) @ weight).sin()
    return x.sum()


def inputs() -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x, weight = (torch.randn(*shape, generator=generator) for shape in ((2, LENGTH, WIDTH), (WIDTH, WIDTH)))
    return x.requires_grad_(), torch.arange(LENGTH).expand(2, -1).clone(), weight.requires_grad_()


def gradients(function: Any, rotary: Rotary, forward: Any) -> list[Tensor]:
    x, position_ids, weight = inputs()
    loss = function(rotary, forward, x, position_ids, weight)
    return [loss.detach(), *torch.autograd.grad(loss, (x, weight))]


def test_layers_compute_them_once() -> None:
    expected, found = Rotary(), Rotary()
    plain = gradients(model, expected, Rotary.forward)
    assert all(map(torch.equal, gradients(model, found, rotary_cache.forward(Rotary.forward, None)), plain))
    assert (expected.times, found.times) == (LAYERS, 1)


def test_a_compiled_region_writes_them_once_for_all_layers() -> None:
    targets: Counter[str] = Counter()

    def seen(gm: fx.GraphModule, example_inputs: Any) -> Any:
        targets.update(str(node.target).removesuffix(".default") for node in gm.graph.nodes)
        return make_boxed_func(gm.forward)

    backend = aot_autograd(fw_compiler=seen, bw_compiler=seen, partition_fn=min_cut_rematerialization_partition)
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    plain = gradients(model, Rotary(), Rotary.forward)
    torch.testing.assert_close(gradients(compiled, Rotary(), rotary_cache.forward(Rotary.forward, None)), plain)
    assert targets["turbo_hydra.written"] == 2
    # Beside them each layer has a sine of its own, and its gradient the cosine.
    assert targets["aten.cos"] == targets["aten.sin"] == 1 + LAYERS
