# SPDX-License-Identifier: Apache-2.0
"""Without checkpoints the same numbers come out, and nothing is computed twice."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils import checkpoint as checkpointing

from tests.catalogs.conftest import Reasons
from tests.catalogs.patching import applied

ID = "torch.checkpoint_off"


class Block(nn.Module):
    """Counts how often it is computed; has dropout, whose draws must not change."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)
        self.calls = 0

    def forward(self, x: Tensor, shift: float = 0.0) -> Tensor:
        self.calls += 1
        return torch.dropout(self.layer(x).tanh() + shift, 0.5, True)


def run(ids: tuple[str, ...], *, leaf: bool, kwargs: dict[str, Any], **options: Any) -> tuple[list[Any], int]:
    torch.manual_seed(1)
    block = Block()
    x = torch.randn(4, 6, requires_grad=leaf)
    with applied(*ids, **options):
        y = checkpointing.checkpoint(block, x, **kwargs)
        if y.requires_grad:
            y.square().sum().backward()
    return [y.detach(), x.grad, block.layer.weight.grad], block.calls


@pytest.mark.parametrize("leaf", [True, False], ids=["input with gradient", "input without"])
@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("more", [{}, {"preserve_rng_state": True}, {"determinism_check": "none", "debug": False}])
def test_outputs_and_gradients_are_the_same_bit_by_bit(leaf: bool, reentrant: bool, more: dict[str, Any]) -> None:
    if reentrant and "debug" in more:
        more = {}  # torch refuses these for the reentrant way
    kwargs = {"use_reentrant": reentrant, **more}
    expected, _ = run((), leaf=leaf, kwargs=kwargs)
    found, calls = run((ID,), leaf=leaf, kwargs=kwargs)
    for mine, reference in zip(found, expected, strict=True):
        assert (mine is None) == (reference is None)
        assert mine is None or torch.equal(mine, reference)
    assert calls == 1


def test_keyword_arguments_reach_the_function() -> None:
    expected, _ = run((), leaf=True, kwargs={"use_reentrant": False, "shift": 2.0})
    found, calls = run((ID,), leaf=True, kwargs={"use_reentrant": False, "shift": 2.0})
    assert calls == 1
    assert torch.equal(found[0], expected[0])


@pytest.mark.parametrize(("keep_above", "calls"), [(23, 2), (24, 1), (0, 1)], ids=["larger", "as large", "no limit"])
def test_large_calls_stay_checkpointed(keep_above: int, calls: int) -> None:
    assert run((ID,), leaf=True, kwargs={"use_reentrant": False}, keep_above=keep_above)[1] == calls


def test_what_chooses_stays_and_so_does_what_would_give_other_gradients(reasons_of: Reasons) -> None:
    said = reasons_of("turbo_hydra.catalogs.torch.checkpoint_off")
    run((ID,), leaf=True, kwargs={"use_reentrant": False, "context_fn": checkpointing.noop_context_fn})
    run((ID,), leaf=False, kwargs={"use_reentrant": True})
    hidden = torch.ones(2, requires_grad=True)
    with applied(ID):
        checkpointing.checkpoint(
            lambda x, y: x * y[0], torch.ones(2, requires_grad=True), (hidden,), use_reentrant=True
        )
    assert said == [
        "what is kept is chosen by a context",
        "reentrant, and gradients would flow otherwise",
        "reentrant, and gradients would flow otherwise",
    ]
