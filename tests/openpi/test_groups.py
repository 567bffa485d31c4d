# SPDX-License-Identifier: Apache-2.0
"""Each group computes what the plain model computes: forward, backward, steps; alone and with every other."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import nn

from tests.catalogs.copies import Copies
from tests.openpi.small import PADDED, applied, batch, groups, model, same, step

# Options under which a group can run on a CPU in a moment; compiling is tested by itself.
GROUPS: Mapping[str, Mapping[str, Any]] = {
    "openpi.pi0_compile": {"mode": "none"},
    "openpi.gemma_checkpoint_stride": {},
    "openpi.camera_batch": {},
    "openpi.async_masks": {},
    "openpi.prefix_trim": {"bucket": 4},
    "openpi.rope_cache": {},
    "openpi.ddp_state": {},
    "openpi.fused_adamw": {},
    "openpi.clip_grad": {},
    "openpi.clipped_adamw": {},
    "openpi.deferred_metrics": {},
    "openpi.tensor_batches": {},
    "openpi.device_batches": {},
    "openpi.geglu": {},
    "openpi.siglip_gelu": {},
    "openpi.strided_attention": {},
    "openpi.ada_rms_norm": {},
    "openpi.softmax": {},
    "openpi.prefix_attention": {},
    "openpi.fp32_optimizer_state": {},
}
STRIDED = {"openpi.gemma_checkpoint_stride": {"layer_stride": 2}}
TOLERANCE = {"float32": 1e-6, "bfloat16": 2e-2}
BATCHES = {
    "all valid": {},
    "two cameras, short prompts": {"cameras": (True, True, False), "prompts": (5, 7)},
    "one camera, one token": {"size": 3, "cameras": (False, True, False), "prompts": (1, 6, 2)},
    "another length, batch of one": {"size": 1, "padded": 9, "prompts": (9,)},
    "nothing valid": {"cameras": (False, False, False), "prompts": (0,)},
}


def bitwise(ids: Any) -> bool:
    known = groups()
    return all(about is not None and about.numerics == "bitwise" for about in (known[id].about for id in ids))


SLOW = pytest.mark.slow
# Groups without a kernel that a CPU could run, which take the original's way here.
KERNELS = ("openpi.geglu", "openpi.siglip_gelu", "openpi.ada_rms_norm", "openpi.softmax", "openpi.prefix_attention")


def fast(ids: Any) -> bool:
    """Whether a combination is tried in each run of the tests, or in the long ones only."""
    return not any(id in KERNELS for id in ids)


@pytest.mark.parametrize(
    "chosen",
    [pytest.param({id: GROUPS[id]}, id=id, marks=() if fast([id]) else SLOW) for id in GROUPS]
    + [pytest.param(STRIDED, id="stride of 2")],
)
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=SLOW if "length" in name or "one camera" in name else ()) for name in BATCHES]
)
def test_a_group_alone_trains_as_the_plain_model(chosen: Mapping[str, Any], dtype: str, name: str) -> None:
    pi0, data = model(dtype), batch(**BATCHES[name])  # type: ignore[arg-type]
    expected = step(pi0, data)
    with applied(chosen):
        found = step(pi0, data)
        again = step(pi0, data)
    same(found, expected, None if bitwise(chosen) else TOLERANCE[dtype])
    same(again, found, None)


@pytest.mark.parametrize("left", [pytest.param(id, marks=() if fast([id]) else SLOW) for id in GROUPS])
@pytest.mark.parametrize("pi05", [True, False], ids=["pi05", "pi0"])
def test_without_any_one_group_the_others_train_as_the_plain_model(left: str, pi05: bool) -> None:
    pi0, data = model(pi05=pi05), batch(prompts=(5, 7))
    expected = step(pi0, data)
    with applied({id: options for id, options in GROUPS.items() if id != left}):
        same(step(pi0, data), expected, TOLERANCE["float32"])


PAIRS = [*itertools.combinations(GROUPS, 2), tuple(GROUPS)]


@pytest.mark.parametrize(
    "pair", [pytest.param(pair, id="+".join(pair), marks=() if fast(pair) else SLOW) for pair in PAIRS]
)
@pytest.mark.parametrize("dtype", ["float32", pytest.param("bfloat16", marks=SLOW)])
def test_every_pair_of_groups_trains_as_the_plain_model(pair: tuple[str, ...], dtype: str) -> None:
    pi0, data = model(dtype), batch(3, cameras=(True, False, True), prompts=(2, 7, 3))
    expected = step(pi0, data)
    with applied({id: GROUPS[id] for id in pair}):
        same(step(pi0, data), expected, TOLERANCE[dtype])


def curve(pi0: nn.Module, steps: int = 5) -> list[float]:
    """Losses of steps as upstream's script makes them, with other prompts in each."""
    optimizer = torch.optim.AdamW(pi0.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=1e-10)
    losses = []
    for number in range(steps):
        torch.manual_seed(number % 2)
        observation, actions = batch(2, prompts=(number + 1, 12 - number), seed=number % 2)
        loss = pi0(observation, actions).mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(pi0.parameters(), max_norm=1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize(
    "chosen",
    [pytest.param({id: GROUPS[id]}, id=id, marks=SLOW) for id in GROUPS] + [pytest.param(GROUPS, id="all")],
)
@pytest.mark.parametrize(("dtype", "relative"), [("float32", 1e-5), ("bfloat16", 3e-2)])
def test_losses_of_several_steps_are_those_of_the_plain_model(
    chosen: Mapping[str, Any], dtype: str, relative: float
) -> None:
    expected = curve(model(dtype))
    with applied(chosen):
        found = curve(model(dtype))
    assert found == pytest.approx(expected, rel=relative)
    assert expected[4] < expected[0]


def test_the_image_encoder_finds_its_attention_without_copies() -> None:
    pi0, images = model(), torch.zeros(2, 3, 8, 8)
    counts = []
    for ids in ([], ["openpi.strided_attention"]):
        with applied({id: {} for id in ids}), Copies() as copies:  # type: ignore[no-untyped-call]
            pi0.paligemma_with_expert.embed_image(images)
        counts.append(copies.count)
    assert counts[0] - counts[1] == 4  # of one layer: query, key, value, and the result


def test_evaluation_is_left_alone() -> None:
    pi0, data = model().eval(), batch(prompts=(5, 7))
    expected = step(pi0, data)
    with applied({id: options for id, options in GROUPS.items() if id != "openpi.prefix_trim"}):
        same(step(pi0, data), expected, None)
    assert PADDED > 7
