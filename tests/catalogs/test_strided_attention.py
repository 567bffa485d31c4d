# SPDX-License-Identifier: Apache-2.0
"""Attention without copies is attention; what it cannot do goes the original's way."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.catalogs.copies import Copies
from turbo_hydra.catalogs.shared import strided_attention


def original(*args: Any, **kwargs: Any) -> Any:
    return "original", args, kwargs


attention: Any = strided_attention.attention(original, None)


def views(batch: int, length: int, heads: int, size: int, **how: Any) -> list[Tensor]:
    """Queries, keys and values as a model makes them: [batch, heads, length, size] of rows of all heads."""
    generator = torch.Generator().manual_seed(batch * 1000 + length)
    rows = [torch.randn(batch, length, heads * size, generator=generator, **how) for _ in range(3)]
    return [item.view(batch, length, heads, size).transpose(1, 2) for item in rows]


def formula(query: Tensor, key: Tensor, value: Tensor, scaling: float | None, causal: bool) -> Tensor:
    scores = query @ key.mT * (query.shape[-1] ** -0.5 if scaling is None else scaling)
    if causal:
        scores = scores.masked_fill(torch.ones_like(scores).triu(1).bool(), -torch.inf)
    return (scores.softmax(-1) @ value).transpose(1, 2)


@settings(deadline=None, max_examples=40)
@given(
    st.integers(1, 3),
    st.integers(1, 9),
    st.integers(1, 3),
    st.integers(1, 8),
    st.sampled_from([None, 0.3]),
    st.sampled_from([None, False, True]),
    st.booleans(),
)
def test_it_is_attention_by_its_formula(
    batch: int, length: int, heads: int, size: int, scaling: float | None, asked: bool | None, decoder: bool
) -> None:
    given_ = [item.requires_grad_() for item in views(batch, length, heads, size, dtype=torch.float64)]
    query, key, value = given_
    module = SimpleNamespace(is_causal=decoder)
    found, weights = attention(module, *given_, None, scaling=scaling, is_causal=asked)
    expected = formula(query, key, value, scaling, decoder if asked is None else asked)
    assert weights is None
    assert found.shape == (batch, length, heads, size)
    assert found.is_contiguous()
    torch.testing.assert_close(found, expected)
    grad = torch.randn_like(found)
    torch.testing.assert_close(torch.autograd.grad(found, given_, grad), torch.autograd.grad(expected, given_, grad))


def test_nothing_is_copied_in_either_pass() -> None:
    given_ = [item.detach().requires_grad_() for item in views(2, 16, 2, 8)]
    with Copies() as copies:  # type: ignore[no-untyped-call]
        found, _ = attention(SimpleNamespace(is_causal=False), *given_, None)
        found.backward(torch.ones(2, 16, 2, 8))
    assert copies.count == 0


@pytest.mark.parametrize(
    ("module", "mask", "more"),
    [
        (SimpleNamespace(), torch.zeros(1, 1, 4, 4), {}),
        (SimpleNamespace(num_key_value_groups=2), None, {}),
        (SimpleNamespace(), None, {"output_attentions": True}),
        (SimpleNamespace(), None, {"head_mask": torch.ones(2)}),
    ],
)
def test_what_it_cannot_do_goes_the_originals_way(
    module: Any, mask: Tensor | None, more: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(strided_attention, "fallback", said.append)
    tensors = views(1, 4, 2, 8)
    name, args, kwargs = attention(module, *tensors, mask, dropout=0.1, scaling=0.5, is_causal=True, **more)
    assert (name, kwargs) == ("original", more)
    assert all(one is other for one, other in zip(args, (module, *tensors, mask, 0.1, 0.5, True), strict=True))
    assert len(said) == 1
