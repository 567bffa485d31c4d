# SPDX-License-Identifier: Apache-2.0
"""A member under torch.compile, activation checkpointing and DDP's static graph: all eight together and apart."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.engine.conftest import Lab

torch = pytest.importorskip("torch", reason="torch is not installed")

LIB = """
    import torch
    from torch.utils.checkpoint import checkpoint

    def act(x):
        return torch.tanh(x)

    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(4, 4)

        def forward(self, x):
            return act(self.linear(x))

    class Net(torch.nn.Module):
        def __init__(self, checkpointing):
            super().__init__()
            self.layers = torch.nn.ModuleList([Layer(), Layer()])
            self.head = torch.nn.Linear(4, 4)
            self.checkpointing, self.steps, self.skip = checkpointing, 0, False

        def forward(self, x):
            for layer in self.layers:
                x = checkpoint(layer, x, use_reentrant=False) if self.checkpointing else layer(x)
            self.steps += 1
            return x if self.skip and self.steps % 2 == 0 else self.head(x)
"""
# Twice the same function, so that gradients are known from the original's; and what saves other tensors than it does.
NEW = """
    import torch

    def act(x):
        e = torch.exp(-2.0 * x)
        return (1.0 - e) / (1.0 + e)
"""


@pytest.fixture(scope="module")
def group_of_one() -> Iterator[None]:
    distributed = torch.distributed
    if not distributed.is_available() or not distributed.is_gloo_available():
        pytest.skip("torch has no gloo")
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


@pytest.fixture
def pairing(lab: Lab, group_of_one: None) -> Iterator[Lab]:
    lab.write("lib", LIB)
    lab.write("new", NEW)
    lab.group("it", lab.replace("lib.act", "new.act"))
    yield lab
    torch._dynamo.reset()


def train(net: Any, run: Any, steps: int = 3) -> list[Any]:
    """Losses and gradients of some steps."""
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    found = []
    for step in range(steps):
        optimizer.zero_grad()
        loss = run(torch.full((2, 4), 0.5 + step)).square().sum()
        loss.backward()
        found.append([loss.detach(), *(item.grad.clone() for item in net.parameters() if item.grad is not None)])
        optimizer.step()
    return found


def wrapped(net: Any, *, compiling: bool, static_graph: bool) -> Any:
    if compiling:
        for layer in net.layers:
            layer.compile(backend="aot_eager")
    return torch.nn.parallel.DistributedDataParallel(net, static_graph=static_graph)


@pytest.mark.parametrize(
    ("compiling", "checkpointing", "static_graph"), list(itertools.product([False, True], repeat=3))
)
def test_a_member_trains_as_the_original_does(
    pairing: Lab, compiling: bool, checkpointing: bool, static_graph: bool
) -> None:
    pairing.record()
    lib = pairing.load("lib")
    torch.manual_seed(0)
    net = lib.Net(checkpointing)
    start = {key: value.clone() for key, value in net.state_dict().items()}
    expected = train(net, net)
    pairing.apply()
    net = lib.Net(checkpointing)
    net.load_state_dict(start)
    actual = train(net, wrapped(net, compiling=compiling, static_graph=static_graph))
    for one, other in zip(expected, actual, strict=True):
        for left, right in zip(one, other, strict=True):
            torch.testing.assert_close(right, left, rtol=1e-5, atol=1e-6)
    hits = pairing.member()["hits"]
    if compiling:
        assert (hits["replacement"], hits["traced"] > 0) == (0, True)
    else:
        assert (hits["replacement"], hits["traced"]) == (12 if checkpointing else 6, 0)


def test_a_set_of_used_parameters_that_changes_under_a_static_graph_ends_the_step_with_torch_s_error(
    pairing: Lab,
) -> None:
    pairing.apply()
    net = pairing.load("lib").Net(False)
    net.skip = True
    with pytest.raises(RuntimeError, match="static_graph"):
        train(net, wrapped(net, compiling=False, static_graph=True))
