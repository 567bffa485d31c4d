# SPDX-License-Identifier: Apache-2.0
"""Compiled layers train as the plain ones, also beside the other groups, and are not compiled anew in each step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import torch
from torch import fx

from tests.bevformer.small import applied, batch, model, same, step
from tests.bevformer.test_groups import DCN, GROUPS, TOLERANCE

ENCODER, DECODER = "bevformer.compile_encoder", "bevformer.compile_decoder"
_compile = torch.compile


@pytest.fixture(autouse=True)
def _fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    yield
    torch._dynamo.reset()


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> list[fx.GraphModule]:
    """Graphs that Dynamo makes, run by autograd's own compiler: Inductor takes minutes on a CPU, and draws anew."""
    seen: list[fx.GraphModule] = []
    from torch._dynamo.backends.debugging import aot_eager

    def backend(graph: fx.GraphModule, inputs: Any) -> Any:
        seen.append(graph)
        return aot_eager(graph, inputs)

    def compile(function: Any, mode: str, dynamic: bool | None) -> Any:
        return _compile(function, backend=backend, dynamic=dynamic)

    monkeypatch.setattr(torch, "compile", compile)
    return seen


@pytest.mark.slow
@pytest.mark.parametrize("others", [{}, GROUPS], ids=["alone", "with all"])
@pytest.mark.parametrize("id", [ENCODER, DECODER])
def test_a_compiled_part_trains_as_the_plain_model(
    graphs: list[fx.GraphModule], id: str, others: Mapping[str, Any]
) -> None:
    net = model(dcn=False)
    data = [batch(2, boxes=(2, 4), seed=seed) for seed in (1, 2, 3)]
    expected = [step(net, one) for one in data]
    with applied({**others, id: {}}):
        for one, wanted in zip(data, expected, strict=True):
            same(step(net, one), wanted, TOLERANCE)
            same(step(net, one), wanted, TOLERANCE)
        count = len(graphs)
        assert count > 0
        for one in data:
            step(net, one)
    assert len(graphs) == count, "compiled anew"
    breaks = torch._dynamo.utils.counters["graph_break"]
    assert not [reason for reason in breaks if "inference_mode" in reason]


@pytest.mark.slow
def test_both_parts_and_all_groups_together(graphs: list[fx.GraphModule]) -> None:
    net, data = model(), batch(2, boxes=(2, 4))
    with applied(DCN):
        expected = step(net, data)
    with applied({**DCN, **GROUPS, ENCODER: {}, DECODER: {"dynamic": False}}):
        same(step(net, data), expected, TOLERANCE)


@pytest.mark.parametrize("id", [ENCODER, DECODER])
def test_options_reach_the_compiler(monkeypatch: pytest.MonkeyPatch, id: str) -> None:
    given: list[dict[str, Any]] = []

    def compile(function: Any, **settings: Any) -> Any:
        given.append(settings)
        return function

    monkeypatch.setattr(torch, "compile", compile)
    with applied({id: {"mode": "max-autotune", "dynamic": True}}):
        step(model(dcn=False), batch())
    assert given == [{"mode": "max-autotune", "dynamic": True}]
