# SPDX-License-Identifier: Apache-2.0
"""Operations that torch counts for operators which multiply matrices, as it counts its own; nothing is computed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch._functorch import config
from torch._functorch.aot_autograd import aot_function
from torch._functorch.compilers import nop
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

from turbo_hydra.kernels.linear_cross_entropy import linear_cross_entropy, linear_cross_entropy_plain
from turbo_hydra.kernels.prefix_attention import prefix_attention


def counted(function: Callable[..., torch.Tensor], *inputs: torch.Tensor) -> tuple[int, int]:
    """Operations of the forward pass, and of both passes."""
    with FlopCounterMode(display=False) as counter:
        out = function(*inputs)
        forward = counter.get_total_flops()
        if out.requires_grad:
            out.backward(torch.ones_like(out))
    return forward, counter.get_total_flops()


def library(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """An attention of the library that torch counts, without what it computes."""
    group = query.shape[1] // key.shape[1]
    three = (query, key.repeat_interleave(group, 1), value.repeat_interleave(group, 1))
    out: torch.Tensor = torch.ops.aten._scaled_dot_product_efficient_attention(*three, None, True)[0]
    return out


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("key_heads", [8, 2, 1])
def test_attention_counts_as_the_library_s_does(key_heads: int, masked: bool, device: torch.device) -> None:
    sizes = [(3, 8, 20, 16), *[(3, key_heads, 50, 16)] * 2]
    expected = counted(library, *(torch.empty(size, device="meta", requires_grad=True) for size in sizes))
    with FakeTensorMode():
        tensors = [torch.empty(size, device=device, requires_grad=True) for size in sizes]
        mask = torch.ones(3, 1, 20, 50, dtype=torch.bool, device=device) if masked else None
        found = counted(partial(prefix_attention, mask=mask), *tensors)
    assert found == expected == (4 * 3 * 8 * 20 * 50 * 16, 14 * 3 * 8 * 20 * 50 * 16)


@pytest.mark.parametrize("for_weight", [False, True])
@pytest.mark.parametrize("for_hidden", [False, True])
def test_the_loss_counts_the_products_of_the_linear_layer(
    for_hidden: bool, for_weight: bool, device: torch.device
) -> None:
    with FakeTensorMode():
        hidden = torch.empty(2, 13, 8, device=device, requires_grad=for_hidden)
        weight = torch.empty(37, 8, device=device, requires_grad=for_weight)
        target = torch.empty(2, 13, dtype=torch.int64, device=device)
        # Its gradients are made in the forward pass.
        found = counted(linear_cross_entropy, hidden, weight, target)
        _, expected = counted(linear_cross_entropy_plain, hidden, weight, target)
    assert found == (expected, expected)
    assert expected == (1 + for_hidden + for_weight) * 2 * 26 * 8 * 37


@pytest.mark.skipif(not hasattr(config, "is_non_builtin_to_include"), reason="torch weighs such operators since 2.10")
def test_a_memory_budget_keeps_attention_before_a_product_that_costs_less(device: torch.device) -> None:
    """Both results have 4 KiB, with 128 and 2 operations for each element; there is room for one of them."""
    again: list[object] = []

    def step(left: torch.Tensor, right: torch.Tensor, *three: torch.Tensor) -> torch.Tensor:
        query, key, value = three
        return (left @ right).sin().sum() + prefix_attention(query, key, value).sin().sum()

    def backward(gm: torch.fx.GraphModule, example_inputs: object) -> Any:
        again.extend(node.target for node in gm.graph.nodes)
        return nop(gm, example_inputs)

    compiled = aot_function(step, nop, backward, min_cut_rematerialization_partition)
    budget = config.patch(activation_memory_budget=0.75, is_non_builtin_to_include=True)
    with FakeTensorMode(), budget:
        sizes = [(32, 1), (1, 32), *[(1, 2, 32, 16)] * 3]
        compiled(*(torch.empty(size, device=device, requires_grad=True) for size in sizes)).backward()
    assert torch.ops.turbo_hydra.prefix_attention_backward.default in again
    assert torch.ops.turbo_hydra.prefix_attention.default not in again
    assert again.count(torch.ops.aten.mm.default) == 3  # the product again, and its two gradients
