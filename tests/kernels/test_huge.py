# SPDX-License-Identifier: Apache-2.0
"""More than 2^31 elements, whose places no 32-bit integer holds: the last ones are as in a small tensor."""

from __future__ import annotations

import pytest
import torch

from tests.kernels.closeness import Function, outputs_and_gradients
from turbo_hydra.kernels.ada_rms_norm import ada_rms_norm
from turbo_hydra.kernels.adamw import adamw
from turbo_hydra.kernels.clip_norm import clip_norm
from turbo_hydra.kernels.geglu import geglu
from turbo_hydra.kernels.gelu_tanh_bias import gelu_tanh_bias
from turbo_hydra.kernels.rope import rope
from turbo_hydra.kernels.softmax import softmax

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a device with 60 GB of memory"),
]
ROWS, WIDTH = (1 << 21) + 3, 1024


def hold_tail(function: Function, large: list[torch.Tensor], tail: list[torch.Tensor]) -> None:
    """Compare the last rows of what is large with the result of these rows alone, bitwise."""
    found = outputs_and_gradients(lambda *given: function(*given), large)
    alone = outputs_and_gradients(lambda *given: function(*given), tail)
    outputs = [name for name in found if name.startswith("output")]
    assert outputs
    for name in outputs:
        count = alone[name].shape[0]
        assert torch.equal(found[name][-count:], alone[name]), name


def rows(draw: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """A tensor of more than 2^31 elements, and its last rows."""
    whole = torch.empty(ROWS, WIDTH, device=draw.device, dtype=torch.bfloat16).normal_(generator=draw)
    return whole.requires_grad_(), whole[-3:].detach().clone().requires_grad_()


def test_geglu(draw: torch.Generator) -> None:
    large, tail = rows(draw)
    hold_tail(geglu, [large, large], [tail, tail])


def test_gelu_tanh_bias(draw: torch.Generator) -> None:
    large, tail = rows(draw)
    bias = torch.ones(WIDTH, device=draw.device, dtype=torch.bfloat16)
    hold_tail(gelu_tanh_bias, [large, bias], [tail, bias])


def test_ada_rms_norm(draw: torch.Generator) -> None:
    large, tail = rows(draw)
    scale = torch.ones(WIDTH, device=draw.device, dtype=torch.bfloat16, requires_grad=True)

    def function(x: torch.Tensor, scale: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return ada_rms_norm(x, scale, None, 1e-6, x)

    hold_tail(function, [large, scale], [tail, scale])


def test_softmax(draw: torch.Generator) -> None:
    large, tail = rows(draw)
    hold_tail(softmax, [large], [tail])


def test_rope(draw: torch.Generator) -> None:
    large, tail = ((item.view(-1, 1, 1, WIDTH)) for item in rows(draw))
    cos = torch.rand(1, 1, WIDTH, device=draw.device)
    hold_tail(lambda q, k: rope(q, k, cos, cos), [large, large], [tail, tail])


def test_clip_norm_and_adamw(draw: torch.Generator) -> None:
    large, _ = rows(draw)
    grads = large.detach()
    norm, _ = clip_norm([grads], 1.0)
    exact = float(sum(part.double().square().sum() for part in grads.split(1 << 18))) ** 0.5
    assert norm.item() == pytest.approx(exact, rel=1e-5)
    lists = [grads.clone(), grads, torch.zeros_like(grads), torch.zeros_like(grads)]
    ends = [item[-3:].clone() for item in lists]
    hyper = {"lr": 0.1, "beta1": 0.9, "beta2": 0.95, "weight_decay": 0.1, "eps": 1e-8}
    step: Function = adamw
    step(*([item] for item in lists), 1, **hyper)
    step(*([item] for item in ends), 1, **hyper)
    assert torch.equal(lists[0][-3:], ends[0])
