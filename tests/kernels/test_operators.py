# SPDX-License-Identifier: Apache-2.0
"""The operators behind the kernels: their fake kernels, their gradients, and one graph under torch.compile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.kernels.closeness import Function, copies, normal, outputs_and_gradients
from turbo_hydra.kernels import ada_rms_norm, adamw, clip_norm, gated, geglu, gelu_tanh_bias, rms_norm, rope, softmax

Draw = torch.Generator


def _rope(draw: Draw) -> list[torch.Tensor]:
    q, k = normal(draw, 2, 3, 4, 8).transpose(1, 2), normal(draw, 2, 3, 1, 8).transpose(1, 2)
    cos = normal(draw, 1, 3, 8).detach()
    return [q, k, cos, cos]


def _modulated(draw: Draw) -> list[torch.Tensor]:
    return [normal(draw, 2, 3, 8), normal(draw, 2, 8), normal(draw, 2, 8), normal(draw, 2, 3, 8), normal(draw, 2, 8)]


def _norm(x: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor, residual: torch.Tensor, gate: torch.Tensor) -> Any:
    return ada_rms_norm.ada_rms_norm(x, scale, shift, 1e-6, residual, gate)


CALLS: dict[str, tuple[Function, Callable[[Draw], list[torch.Tensor]]]] = {
    "geglu": (geglu.geglu, lambda draw: [normal(draw, 3, 8), normal(draw, 3, 8)]),
    "gelu_tanh_bias": (gelu_tanh_bias.gelu_tanh_bias, lambda draw: [normal(draw, 3, 8), normal(draw, 8)]),
    "rms_norm": (lambda x, w: rms_norm.rms_norm(x, w, 1e-6), lambda draw: [normal(draw, 2, 3, 8), normal(draw, 8)]),
    "ada_rms_norm": (_norm, _modulated),
    "rope": (rope.rope, _rope),
    "softmax": (softmax.softmax, lambda draw: [normal(draw, 2, 2, 3, 8), normal(draw, 2, 1, 3, 8).detach()]),
}


@pytest.mark.parametrize("name", CALLS)
def test_torch_compile_keeps_one_graph(name: str, draw: torch.Generator) -> None:
    function, make = CALLS[name]
    inputs = make(draw)
    torch._dynamo.reset()
    compiled = torch.compile(lambda *given: function(*given), fullgraph=True, backend="aot_eager")
    leaves = copies(*inputs)
    found, expected = outputs_and_gradients(compiled, leaves), outputs_and_gradients(function, inputs)
    for what, value in found.items():
        torch.testing.assert_close(value, expected[what])


def _operators(draw: Draw) -> dict[str, tuple[Any, tuple[Any, ...]]]:
    """Each operator with arguments."""
    x, gate = normal(draw, 3, 8), normal(draw, 3, 8)
    parts = _modulated(draw)
    lists = [[normal(draw, 5).detach()] for _ in range(3)] + [[torch.ones(5, device=draw.device)]]
    settings = (None, 0.9, 0.9, 0.95, 0.01, 1.5, 1e-8, False, None)
    scores = normal(draw, 2, 2, 3, 8)
    return {
        "gated": (gated.gated, (x, gate, "silu", False)),
        "gelu_tanh_bias": (gelu_tanh_bias._operator, (x, normal(draw, 8))),
        "ada_rms_norm": (ada_rms_norm._operator, (*parts, 1e-6, 1.0)),
        "ada_rms_norm without": (ada_rms_norm._operator, (parts[0], parts[1], None, None, None, 1e-6, 1.0)),
        "rope": (rope._operator, (*_rope(draw), False)),
        "softmax": (softmax._operator, (scores, normal(draw, 2, 1, 3, 8).detach(), 0.5)),
        "clip_norm": (clip_norm._operator, ([x.detach(), gate.detach()], 1.0)),
        "adamw": (adamw._operator, (*lists, *settings)),
    }


def test_lists_of_tensors_are_written_in_a_compiled_graph_too(draw: torch.Generator) -> None:
    lists = [[normal(draw, 5).detach() for _ in range(2)] for _ in range(3)]
    lists.append([torch.ones(5, device=draw.device) for _ in range(2)])
    others = [[item.clone() for item in items] for items in lists]

    def step(params: Any, grads: Any, first: Any, second: Any) -> torch.Tensor:
        norm, factor = clip_norm.clip_norm(grads, 1.0)
        adamw.adamw(
            params, grads, first, second, 3, lr=0.01, beta1=0.9, beta2=0.95, weight_decay=0.1, eps=1e-8, factor=factor
        )
        return norm

    torch._dynamo.reset()
    found = torch.compile(step, fullgraph=True, backend="aot_eager")(*lists)
    torch.testing.assert_close((found, lists), (step(*others), others))


OPERATORS = ["gated", "gelu_tanh_bias", "ada_rms_norm", "ada_rms_norm without", "rope", "softmax", "clip_norm", "adamw"]


@pytest.mark.slow
@pytest.mark.parametrize("name", OPERATORS)
def test_operators_keep_what_they_declare(name: str, draw: torch.Generator) -> None:
    """Schema, fake kernel, registration of the gradient, and ahead-of-time autograd, as torch.library checks them."""
    operator, arguments = _operators(draw)[name]
    torch.library.opcheck(operator, arguments)


def test_the_tables_serve_every_kind_of_device() -> None:
    """Kinds that nobody measured get as many threads, in waves of theirs, and at most two stages."""
    from turbo_hydra.kernels.configurations import derive
    from turbo_hydra.kernels.device import KINDS

    found = derive({"BLOCK": 1024, "num_warps": 8, "num_stages": 4, "STAGES": 3}, KINDS["gfx936"])
    assert found == {"BLOCK": 1024, "num_warps": 4, "num_stages": 2, "STAGES": 2}
    assert [name for name, kind in KINDS.items() if kind.measured] == ["sm_90"]
    assert all(kind.lanes == 64 for kind in KINDS.values() if kind.name.startswith("gfx9"))
