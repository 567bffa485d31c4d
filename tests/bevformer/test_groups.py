# SPDX-License-Identifier: Apache-2.0
"""Each group computes what the plain model computes: forward, backward, draws, steps; alone and with every other."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import nn

from tests.bevformer.small import applied, batch, groups, model, same, step

# Options under which a group does its work on a CPU; compiling is tested by itself.
GROUPS: Mapping[str, Mapping[str, Any]] = {
    "mmcv.msda": {},
    "mmcv.attention": {},
    "bevformer.msda": {},
    "bevformer.sca": {},
    "bevformer.tsa": {},
    "bevformer.decoder_attention": {},
    "bevformer.geometry": {},
    "bevformer.conv_tf32": {},
    "bevformer.grid_mask": {},
    "bevformer.assigner": {},
    "bevformer.data": {},
    "bevformer.training": {},
}
COMPILING = ("bevformer.compile_encoder", "bevformer.compile_decoder")
DCN: Mapping[str, Mapping[str, Any]] = {"mmcv.dcn": {}}  # there is no model with DCN without it
DEVICE = ("mmcv.dcn_kernel", "mmcv.focal_loss")  # called on a device alone
# Absolute, and relative to the largest number of a gradient.
TOLERANCE = 2e-5
BATCHES: Mapping[str, Mapping[str, Any]] = {
    "one sample": {},
    "two samples, one without boxes": {"size": 2, "boxes": (4, 0)},
    "a new scene": {"frames": 1},
}


def bitwise(ids: Any) -> bool:
    known = groups()
    return all(about is not None and about.numerics == "bitwise" for about in (known[id].about for id in ids))


def test_every_group_is_tried_here() -> None:
    assert set(groups()) == {*GROUPS, *COMPILING, *DCN, *DEVICE}


@pytest.mark.parametrize("id", GROUPS)
@pytest.mark.parametrize("name", BATCHES)
def test_a_group_alone_trains_as_the_plain_model(id: str, name: str) -> None:
    # Attention with dropout is left as it is on a CPU.
    net, data = model(dcn=False, dropout=0.0 if id == "mmcv.attention" else 0.1), batch(**BATCHES[name])
    expected = step(net, data)
    with applied({id: GROUPS[id]}):
        found = step(net, data)
        again = step(net, data)
    same(found, expected, None if bitwise([id]) else TOLERANCE)
    same(again, found, None)


@pytest.mark.parametrize("id", [*(pytest.param(id, marks=pytest.mark.slow) for id in GROUPS), "all"])
def test_in_mmcvs_half_precision_a_group_trains_as_the_plain_model(id: str) -> None:
    """Decorators cast, here to bfloat16. Rounding turns the sign of an L1 loss now and then: gradients are near."""
    net, data = model(dcn=False, fp16=True), batch(2, boxes=(2, 4))
    expected = step(net, data)
    chosen = {name: options for name, options in GROUPS.items() if id in (name, "all")}
    with applied(chosen):
        found = step(net, data)
    if bitwise(chosen):
        same(found, expected, None)
    torch.testing.assert_close(found[0], expected[0], atol=0.05, rtol=0.05)
    mine, theirs = (
        torch.cat([item.flatten() for item in one.values() if item is not None]) for one in (found[1], expected[1])
    )
    assert (mine - theirs).norm() < 0.1 * theirs.norm()


@pytest.mark.parametrize("left", GROUPS)
def test_without_any_one_group_the_others_train_as_the_plain_model(left: str) -> None:
    net, data = model(dcn=False), batch(2, boxes=(2, 4))
    expected = step(net, data)
    with applied({id: options for id, options in GROUPS.items() if id != left}):
        same(step(net, data), expected, TOLERANCE)


PAIRS = [*itertools.combinations(GROUPS, 2), tuple(GROUPS)]
# Groups that hand each other what they have made, whose pairs are tried in each run of the tests.
TOGETHER = {"mmcv.msda", "bevformer.sca", "bevformer.tsa", "bevformer.geometry", "bevformer.conv_tf32"}


def marks(pair: tuple[str, ...]) -> Any:
    return () if set(pair) <= TOGETHER or len(pair) > 2 else pytest.mark.slow


@pytest.mark.parametrize("pair", [pytest.param(pair, id="+".join(pair), marks=marks(pair)) for pair in PAIRS])
def test_every_pair_of_groups_trains_as_the_plain_model(pair: tuple[str, ...]) -> None:
    net, data = model(), batch(2, boxes=(2, 4))
    with applied(DCN):
        expected = step(net, data)
    with applied({**DCN, **{id: GROUPS[id] for id in pair}}):
        same(step(net, data), expected, None if bitwise(pair) else TOLERANCE)


def curve(net: nn.Module, steps: int = 4) -> list[float]:
    """Losses of steps with mmcv's optimizer: a group a parameter."""
    optimizer = torch.optim.AdamW([{"params": [item]} for item in net.parameters()], lr=1e-3, weight_decay=0.01)
    losses = []
    for number in range(steps):
        losses.append(step(net, batch(2, boxes=(number, 3), seed=number % 2), number % 2)[0][:-2].sum().item())
        torch.nn.utils.clip_grad_norm_(net.parameters(), max_norm=35)
        optimizer.step()
    return losses


@pytest.mark.parametrize("chosen", [*(pytest.param(id, marks=pytest.mark.slow) for id in GROUPS), "all"])
def test_losses_of_several_steps_are_those_of_the_plain_model(chosen: str) -> None:
    with applied(DCN):
        expected = curve(model())
    with applied({**DCN, **{id: options for id, options in GROUPS.items() if chosen in (id, "all")}}):
        found = curve(model())
    assert found == pytest.approx(expected, rel=1e-5)
    assert expected[3] < expected[1]


def test_evaluation_computes_the_same_maps() -> None:
    net, data = model().eval(), batch(2)
    now = [each[0] for each in data["img_metas"]]

    def maps() -> torch.Tensor:
        with torch.inference_mode():
            features = net.extract_feat(data["img"][:, 0])
            found = net.pts_bbox_head(features, now, None)
            return torch.cat([found[name].flatten() for name in ("bev_embed", "all_cls_scores", "all_bbox_preds")])

    with applied(DCN):
        expected = maps()
    with applied({**DCN, **GROUPS}):
        torch.testing.assert_close(maps(), expected, atol=1e-4, rtol=1e-4)
