# SPDX-License-Identifier: Apache-2.0
"""prefix_attention: the library's result within its own error under any mask, and what of a mask is skipped."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.kernels.closeness import DTYPES, assert_close, copies, doubles
from turbo_hydra.kernels import prefix_attention as module
from turbo_hydra.kernels.prefix_attention import mask_blocks, prefix_attention, prefix_attention_plain, unfit

# On a device tiles are larger: there the same tests have several of them, too.
LONG = 8 if torch.cuda.is_available() else 1
HIDE = -2.3819763e38


def prefix_mask(batch: int, prefix: int, suffix: int, device: torch.device) -> torch.Tensor:
    """Boolean [B, 1, S, S] of a prefix language model: padding in the middle, the suffix unseen by the prefix.

    As pi0's: a token sees those whose block starts no later, and padding neither sees nor is seen.
    """
    length = prefix + suffix
    block = torch.zeros(length, dtype=torch.int64, device=device)
    block[prefix] = 1
    block = block.cumsum(0)
    real = torch.ones(batch, length, dtype=torch.bool, device=device)
    for row in range(batch):
        real[row, prefix // 3 : prefix // 3 + (row + 1) * prefix // (2 * batch)] = False
    seen = (block[None, None, :] <= block[None, :, None]) & real[:, None, :] & real[:, :, None]
    return seen[:, None]


def inputs(
    draw: torch.Generator, shape: tuple[int, int, int, int, int, int], dtype: torch.dtype, scale: float = 1.0
) -> list[torch.Tensor]:
    """Query, key and value for batch, heads, key/value heads, queries, keys and head size."""
    batch, heads, key_heads, queries, keys, width = shape
    sizes = [(batch, heads, queries, width), *[(batch, key_heads, keys, width)] * 2]
    return [
        (torch.randn(size, device=draw.device, generator=draw) * scale).to(dtype).requires_grad_() for size in sizes
    ]


def results(
    function: Callable[..., torch.Tensor], tensors: list[torch.Tensor], grad: torch.Tensor, *rest: object
) -> list[torch.Tensor]:
    """Output and gradients."""
    out = function(*tensors, *rest)
    return [out, *torch.autograd.grad(out, tensors, grad.to(out.dtype))]


def hold(
    tensors: list[torch.Tensor], mask: torch.Tensor | None, grad: torch.Tensor | None = None, scale: float | None = None
) -> None:
    """Compare results and gradients of kernel and plain path with float64."""
    query, key, value = tensors
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    assert unfit(query, key, value, mask, scale) is None
    if grad is None:
        grad = torch.linspace(-1, 1, query.numel(), device=query.device).view(query.shape).to(query.dtype)
    found = results(prefix_attention, tensors, grad, mask, scale)
    library = results(prefix_attention_plain, copies(*tensors), grad, mask, scale)
    exact = results(prefix_attention_plain, doubles(*tensors), grad, mask, scale)
    for what, *three in zip(("out", "query's", "key's", "value's"), found, library, exact, strict=True):
        assert_close(*three, what=what)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_no_further_from_the_exact_result_than_the_library(dtype: torch.dtype, draw: torch.Generator) -> None:
    length = 20 * LONG
    seen = prefix_mask(2, length - 3, 3, draw.device)
    hold(inputs(draw, (2, 4, 1, length, length, 16), dtype), torch.where(seen, 0.0, HIDE))


@pytest.mark.parametrize("sizes", [(2, 8, 1, 256), (1, 6, 2, 128), (1, 2, 2, 64)], ids=str)
def test_head_sizes_that_an_sm_90_has_a_kernel_of_its_own_for(
    sizes: tuple[int, int, int, int], draw: torch.Generator
) -> None:
    batch, heads, key_heads, width = sizes
    length = 12 * LONG * LONG
    seen = prefix_mask(batch, length - 3, 3, draw.device)
    tensors = inputs(draw, (batch, heads, key_heads, length, length, width), torch.bfloat16)
    hold(tensors, torch.where(seen, 0.0, HIDE))
    query, key, value = tensors
    found, expected = (f(query, key, value, seen, 0.125) for f in (prefix_attention, prefix_attention_plain))
    torch.testing.assert_close(found, expected, rtol=3e-2, atol=3e-2)


@pytest.mark.parametrize(
    "shape", [(1, 1, 1, 1, 1, 1), (1, 6, 2, 7, 19, 3), (1, 3, 3, 18, 5, 40), (1, 16, 1, 2, 17, 256)], ids=str
)
def test_odd_shapes_without_a_mask(shape: tuple[int, int, int, int, int, int], draw: torch.Generator) -> None:
    hold(inputs(draw, shape, torch.float32), None)


def test_boolean_masks_and_masks_that_are_broadcast(draw: torch.Generator) -> None:
    tensors = inputs(draw, (2, 2, 1, 6, 18, 8), torch.bfloat16)
    hold(tensors, torch.rand(2, 1, 6, 18, device=draw.device, generator=draw) > 0.4)
    hold(tensors, torch.arange(18, device=draw.device)[None, None, None] < 17)


def test_an_additive_mask_is_added_wherever_it_does_not_hide(draw: torch.Generator) -> None:
    bias = torch.randn(1, 1, 12, 20, device=draw.device, generator=draw) * 3
    bias[..., 4:9] = -30000.0
    hold(inputs(draw, (1, 2, 1, 12, 20, 16), torch.float32), bias)


def test_queries_that_see_nothing_attend_to_all_keys_alike(draw: torch.Generator) -> None:
    query, key, value = inputs(draw, (1, 2, 1, 32, 32, 8), torch.float32)
    seen = torch.ones(1, 1, 32, 32, dtype=torch.bool, device=draw.device)
    seen[:, :, 3] = False
    seen[:, :, 16:28] = False
    out = prefix_attention(query, key, value, seen)
    mean = value.mean(2, keepdim=True).expand(1, 2, 1, 8)
    torch.testing.assert_close(out[:, :, [3, 16, 24]], mean.expand(1, 2, 3, 8), rtol=1e-5, atol=1e-6)
    # Such queries pass gradients on as the library's softmax does, whether they are few in a tile or all of it.
    hold([query, key, value], torch.where(seen, 0.0, HIDE))


def test_rows_without_a_gradient_are_left_out_of_the_backward(draw: torch.Generator) -> None:
    length = 36 * LONG
    tensors = inputs(draw, (1, 2, 1, length, length, 16), torch.float32)
    grad = torch.zeros_like(tensors[0])
    grad[:, :, -3:] = 1.0
    hold(tensors, torch.where(prefix_mask(1, length - 3, 3, draw.device), 0.0, HIDE), grad)


def test_strides_cost_nothing_but_a_copy(draw: torch.Generator) -> None:
    packed = torch.randn(2, 11, 6, 16, device=draw.device, generator=draw)
    query, key, value = (
        packed[:, :, :4].transpose(1, 2),
        packed[:, :, 4:5].transpose(1, 2),
        packed[:, :, 5:].transpose(1, 2),
    )
    tensors = [tensor.detach().requires_grad_() for tensor in (query, key, value)]
    hold(tensors, None, torch.ones((), device=draw.device).expand(query.shape))
    out = prefix_attention(tensors[0], tensors[1], tensors[2])
    assert out.transpose(1, 2).is_contiguous()
    backwards = torch.randn(1, 2, 8, 5, device=draw.device, generator=draw).transpose(2, 3).requires_grad_()
    hold([backwards, *(t.detach()[:1, :, :, :8].requires_grad_() for t in tensors[1:])], None)


def test_elements_far_from_the_first(draw: torch.Generator) -> None:
    far = torch.empty(2**31 + 2048, dtype=torch.bfloat16, device=draw.device)
    tensors: list[torch.Tensor] = []
    for tensor in inputs(draw, (2, 2, 1, 8, 8, 16), torch.bfloat16):
        view = far.as_strided(tensor.shape, (2**31, *tensor.stride()[1:]), len(tensors) * 512)
        view.copy_(tensor.detach())
        tensors.append(view.requires_grad_())
    hold(tensors, None)


def test_tiny_and_large_inputs(draw: torch.Generator) -> None:
    hold(inputs(draw, (1, 2, 1, 8, 20, 16), torch.float32, 1e-4), None)
    for scale in (30.0, 1e4):
        tensors = inputs(draw, (1, 2, 1, 8, 20, 16), torch.float32, scale)
        grad = torch.ones_like(tensors[0])
        found = results(prefix_attention, tensors, grad)
        exact = results(lambda q, k, v: prefix_attention_plain(q, k, v, None, 0.25), doubles(*tensors), grad)
        # Where one key has all the weight, gradients by query and key are differences of nearly equal numbers.
        for one, two, terms in zip(found, exact, (scale, scale**2, scale**2, 1.0), strict=True):
            torch.testing.assert_close(one.double(), two, rtol=1e-4, atol=terms * 1e-4)


@pytest.mark.parametrize("number", [float("nan"), float("inf")], ids=str)
def test_numbers_that_are_not_finite_spoil_what_sees_them(number: float, draw: torch.Generator) -> None:
    query, key, value = inputs(draw, (2, 2, 1, 8, 20, 16), torch.float32)
    with torch.no_grad():
        value[0, 0, 3, 5] = number
        query[1, 1, 2, 0] = number
    out, plain = prefix_attention(query, key, value), prefix_attention_plain(query, key, value, None, 0.25)
    assert torch.equal(out.isfinite(), plain.isfinite())


def test_what_is_derived_from_a_mask(draw: torch.Generator) -> None:
    query, key, _ = inputs(draw, (2, 4, 1, 32, 32, 16), torch.float32)
    tokens, keys = module.tiles(query, key)
    seen = torch.ones(2, 1, 4 * tokens, 3 * keys, dtype=torch.bool, device=draw.device)
    seen[0, :, :tokens, keys:] = False
    seen[0, :, tokens, 0] = False
    seen[1, :, :, : 2 * keys] = False
    query, key = query.new_empty(2, 4, 4 * tokens, 16), key.new_empty(2, 1, 3 * keys, 16)
    expected = [[[2, 0, 0], [1, 2, 2], [2, 2, 2], [2, 2, 2]], [[0, 0, 2]] * 4]
    for mask in (seen, torch.where(seen, 0.0, HIDE), torch.where(seen, 0.0, -torch.inf)):
        blocks = mask_blocks(mask, query, key)
        assert blocks.kinds.tolist() == expected
        assert blocks.columns[0, 1, :5].tolist() == [2, 3, 1, 2, 0]
        assert blocks.columns[1, 3, :3].tolist() == [1, 1, 2]
    biased = mask_blocks(torch.full_like(seen, 0.5, dtype=torch.float32), query, key)
    assert biased.kinds.unique().tolist() == [1]


def test_blocks_derived_once_serve_every_layer(draw: torch.Generator) -> None:
    query, key, value = inputs(draw, (2, 2, 1, 20, 20, 16), torch.float32)
    seen = prefix_mask(2, 17, 3, draw.device)
    blocks = mask_blocks(seen, query, key)
    assert torch.equal(prefix_attention(query, key, value, blocks), prefix_attention(query, key, value, seen))
    with pytest.raises(ValueError, match="derived for other tensors"):
        prefix_attention(query, key, value, blocks._replace(kinds=blocks.kinds[:, :, :0]))


def test_parts_of_the_backward_change_nothing(draw: torch.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    tensors = inputs(draw, (2, 2, 1, 8, 20, 16), torch.float32)
    grad = torch.ones_like(tensors[0])
    whole = results(prefix_attention, tensors, grad)
    monkeypatch.setattr(module, "PART", 1)
    assert all(map(torch.equal, whole, results(prefix_attention, tensors, grad)))


def test_gradients_in_double_precision(draw: torch.Generator) -> None:
    if draw.device.type == "cuda":
        pytest.skip("float64 is for the interpreter only")
    tensors = inputs(draw, (1, 2, 1, 4, 18, 3), torch.float64)
    seen = torch.ones(1, 1, 4, 18, dtype=torch.bool)
    seen[..., :3, 6:] = False
    assert torch.autograd.gradcheck(lambda q, k, v: prefix_attention(q, k, v, seen), tensors, fast_mode=True)


def test_one_graph_under_torch_compile(draw: torch.Generator) -> None:
    tensors = inputs(draw, (1, 2, 1, 8, 20, 16), torch.float32)
    mask = torch.where(torch.arange(20, device=draw.device)[None, None, None] < 17, 0.0, HIDE)

    def layers(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return prefix_attention(prefix_attention(query, key, value, mask), key, value, mask)

    grad = torch.ones_like(tensors[0])
    compiled = torch.compile(layers, backend="aot_eager", fullgraph=True)
    for one, two in zip(results(compiled, tensors, grad), results(layers, tensors, grad), strict=True):
        torch.testing.assert_close(one, two)


def test_operators_are_declared_as_they_behave(draw: torch.Generator) -> None:
    query, key, value = inputs(draw, (1, 2, 1, 4, 5, 16), torch.float32)
    blocks = mask_blocks(None, query, key)
    torch.library.opcheck(
        module.attend, (query, key, value, *blocks, 0.25), test_utils=("test_schema", "test_faketensor")
    )


def test_what_the_kernels_do_not_take_goes_the_plain_path(draw: torch.Generator) -> None:
    query, key, value = inputs(draw, (1, 2, 1, 4, 6, 8), torch.float32)
    mask = torch.zeros(1, 2, 4, 6, device=draw.device)
    learnt = torch.zeros(1, 1, 4, 6, device=draw.device, requires_grad=True)
    cases = {
        "the mask is not [B, 1, Q, K]": (query, key, value, mask, 0.5),
        "the mask needs a gradient, or is neither boolean nor additive": (query, key, value, learnt, 0.5),
        "the scale is not positive": (query, key, value, None, -0.5),
        "query, key and value differ in dtype or are float64": (query.half(), key, value, None, 0.5),
        "nothing to attend to": (query[:, :, :0], key, value, None, 0.5),
    }
    for reason, arguments in cases.items():
        assert unfit(*arguments) == reason
        if "differ" not in reason:
            torch.testing.assert_close(prefix_attention(*arguments), prefix_attention_plain(*arguments))


@settings(
    max_examples=4, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(
    batch=st.integers(1, 2), key_heads=st.integers(1, 2), group=st.integers(1, 4), queries=st.integers(1, 9),
    keys=st.integers(1, 36), width=st.integers(1, 20), hidden=st.floats(0, 1), seed=st.integers(0, 9),
)  # fmt: skip
def test_shapes_and_masks_at_random(
    batch: int, key_heads: int, group: int, queries: int, keys: int, width: int, hidden: float, seed: int,
    device: torch.device,
) -> None:  # fmt: skip
    draw = torch.Generator(device).manual_seed(seed)
    tensors = inputs(draw, (batch, key_heads * group, key_heads, queries, keys, width), torch.float32)
    seen = torch.rand(batch, 1, queries, keys, device=device, generator=draw) >= hidden
    hold(tensors, torch.where(seen, 0.0, HIDE))
