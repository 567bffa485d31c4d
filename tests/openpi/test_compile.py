# SPDX-License-Identifier: Apache-2.0
"""Compiled regions: the same training, nothing computed twice, one graph below DDP, and Dynamo's settings as before."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import fx

from tests.openpi.small import applied, batch, model, same, step
from tests.openpi.test_groups import GROUPS, TOLERANCE
from turbo_hydra.catalogs.models.openpi import pi0_compile
from turbo_hydra.catalogs.models.openpi.options import Pi0Compile
from turbo_hydra.catalogs.shared import kept_activations

COMPILE, STRIDE = "openpi.pi0_compile", "openpi.gemma_checkpoint_stride"
_compile = torch.compile


@pytest.fixture(autouse=True)
def _fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> list[fx.GraphModule]:
    """Graphs that Dynamo makes of the regions, run by autograd's own compiler: Inductor takes minutes on a CPU."""
    seen: list[fx.GraphModule] = []
    from torch._dynamo.backends.debugging import aot_eager

    def backend(graph: fx.GraphModule, inputs: Any) -> Any:
        seen.append(graph)
        return aot_eager(graph, inputs)

    monkeypatch.setattr(torch, "compile", lambda function, options, dynamic: _compile(function, backend=backend))
    return seen


def checkpoints(graph: fx.GraphModule) -> int:
    return sum("tag_activation_checkpoint" in str(node.target) for node in graph.graph.nodes)


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("stride", "checkpoint"),
    [(0, "direct"), *(pytest.param(*item, marks=SLOW) for item in ((1, "direct"), (0, "upstream"), (1, "upstream")))],
)
def test_regions_train_alike_and_nothing_is_computed_twice_with_a_stride_of_0(
    graphs: list[fx.GraphModule], stride: int, checkpoint: str
) -> None:
    pi0, data = model(), batch(prompts=(5, 7))
    expected = step(pi0, data)
    with applied({COMPILE: {"checkpoint": checkpoint}, STRIDE: {"layer_stride": stride}}):
        same(step(pi0, data), expected, 1e-6)
        count = len(graphs)
        same(step(pi0, data), expected, 1e-6)
    assert len(graphs) == count == 2  # one for the image encoder, one for the joint forward
    assert sorted(map(checkpoints, graphs)) == [0, 3 if stride else 0]  # two layers and the final norms


@SLOW
@pytest.mark.parametrize("other", [id for id in GROUPS if id != COMPILE])
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_each_other_group_goes_with_compiled_regions(graphs: list[fx.GraphModule], other: str, dtype: str) -> None:
    pi0, data = model(dtype), batch(3, cameras=(True, False, True), prompts=(2, 7, 3))
    expected = step(pi0, data)
    with applied({COMPILE: {}, other: GROUPS[other]}):
        same(step(pi0, data), expected, TOLERANCE[dtype])
    assert graphs


@SLOW
def test_new_prompts_compile_as_many_lengths_as_there_are_buckets(graphs: list[fx.GraphModule]) -> None:
    pi0 = model()
    with applied({COMPILE: {"image_region": False}, STRIDE: {}, "openpi.prefix_trim": {"bucket": 6}}):
        for prompts in ((1, 2), (3, 6), (5, 2), (7, 1), (12, 12), (2, 2)):
            step(pi0, batch(prompts=prompts))
    assert len(graphs) == 2


@pytest.mark.parametrize("multiple", [1, 8, 16])
def test_the_joint_sequence_is_padded_and_the_result_is_not(multiple: int) -> None:
    lengths = []
    pi0, data = model(), batch(1)
    expected = step(pi0, data)
    with applied({COMPILE: {"mode": "none", "multiple": multiple}}):
        forward = pi0.paligemma_with_expert.forward

        def noted(**arguments: Any) -> Any:
            lengths.append((arguments["attention_mask"].shape[-1], arguments["position_ids"].shape[-1]))
            return forward(**arguments)

        pi0.paligemma_with_expert.forward = noted
        same(step(pi0, data), expected, 1e-6)
    assert lengths == [{1: (27, 27), 8: (32, 32), 16: (32, 32)}[multiple]]


def test_dynamos_setting_is_restored_after_an_exception() -> None:
    seen = []

    def forward_func(value: torch.Tensor) -> torch.Tensor:
        seen.append(torch._dynamo.config.optimize_ddp)
        raise RuntimeError("out of memory")

    call = pi0_compile._called_by(lambda func, args, kwargs: func(*args, **kwargs), forward_func, 1.0)
    before = torch._dynamo.config.optimize_ddp
    with pytest.raises(RuntimeError, match="out of memory"):
        call(torch.zeros(1))
    assert seen == [False]
    assert torch._dynamo.config.optimize_ddp == before is not False


@pytest.mark.parametrize("option", ["memory_budget", "image_memory_budget"])
@pytest.mark.parametrize("budget", [0.0, -0.5, 1.01])
def test_a_budget_that_is_no_part_of_the_memory_is_refused(option: str, budget: float) -> None:
    chosen: Any = {option: budget}
    options = Pi0Compile(mode="none", **chosen)
    with pytest.raises(ValueError, match=rf"^openpi\.pi0_compile: {option} must be more than 0 .* found {budget}$"):
        pi0_compile.apply_checkpoint(lambda *_: None, options)


def test_each_region_has_its_own_budget(graphs: list[fx.GraphModule], monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def noted(budget: float) -> dict[str, Any]:
        asked.append(budget)
        return {"activation_memory_budget": budget}

    monkeypatch.setattr(kept_activations, "settings", noted)
    with applied({COMPILE: {"memory_budget": 0.7, "image_memory_budget": 0.2}, STRIDE: {}}):
        step(model(), batch(cameras=(True, False, False)))
    assert asked == [0.2, 0.2, 0.2, 0.7]  # a camera after the other


def test_only_the_two_regions_are_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = []

    def noted(function: Any, **_: Any) -> Any:
        compiled.append(function.__name__)
        return function

    monkeypatch.setattr(torch, "compile", noted)
    for options in (Pi0Compile(), Pi0Compile(image_region=False), Pi0Compile(mode="none")):
        pi0_compile.apply_checkpoint(lambda *_: None, options)
    assert compiled == ["_joint_forward", "_image_encoder", "_joint_forward"]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_bias_is_added_by_the_product_whatever_its_width() -> None:
    from torch.profiler import ProfilerActivity, profile

    # Widths of SigLIP's feed-forward block. 8608 bytes are no multiple of 128.
    layer = torch.nn.Linear(1152, 4304, device="cuda", dtype=torch.bfloat16)
    rows = torch.randn(512, 1152, device="cuda", dtype=torch.bfloat16)

    def image_embed_func(rows: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.gelu(layer(rows), approximate="tanh").mean()

    call = pi0_compile.apply_checkpoint(lambda *_: None, Pi0Compile(image_memory_budget=1.0))
    model = SimpleNamespace(training=True)
    call(model, image_embed_func, rows).backward()
    with profile(activities=[ProfilerActivity.CUDA]) as traced:
        call(model, image_embed_func, rows)
        torch.cuda.synchronize()
    kernels = [event.name for event in traced.events()]
    assert any("gemm" in name or "nvjet" in name or "cutlass" in name for name in kernels), kernels
    assert not any("copy_kernel" in name for name in kernels), kernels


@SLOW
@pytest.mark.timeout(900)
def test_inductor_trains_alike_with_all_groups() -> None:
    pi0, data = model(), batch(2, cameras=(True, False, True), prompts=(5, 7))
    expected = step(pi0, data)
    with applied({**GROUPS, COMPILE: {}}):
        same(step(pi0, data), expected, 1e-5)
