# SPDX-License-Identifier: Apache-2.0
"""Single replacements against values that are known from elsewhere, and what guards let through."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.bevformer.small import BEV, PARTS, PLUGIN, RANGE, applied, batch, camera, model, part, step
from turbo_hydra.catalogs.mmcv import deform_conv, focal_loss, msda
from turbo_hydra.catalogs.models.bevformer import assigner, sca
from turbo_hydra.catalogs.models.bevformer.constants import Constants
from turbo_hydra.catalogs.remembering import LastResult
from turbo_hydra.catalogs.shared.corners import read_between
from turbo_hydra.engine.objects import load_object
from turbo_hydra.kernels.msda import msda_plain


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What guards say."""
    found: list[str] = []
    for name in ("sca", "tsa", "decoder_attention", "point_sampling", "encoder_layer", "grid_mask", "assigner"):
        module = f"turbo_hydra.catalogs.models.bevformer.{name}"
        monkeypatch.setattr(f"{module}.fallback", found.append)
    for name in ("msda", "attention", "deform_conv", "focal_loss"):
        monkeypatch.setattr(f"turbo_hydra.catalogs.mmcv.{name}.fallback", found.append)
    return found


# Multi-scale deformable attention


def attention_inputs(dtype: torch.dtype, *, outside: bool = False) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    shapes = torch.tensor([[3, 5], [1, 2], [4, 1]])
    value = torch.randn(2, int(shapes.prod(1).sum()), 3, 4, dtype=dtype, requires_grad=True)
    spread = 3.0 if outside else 1.0
    locations = ((torch.rand(2, 6, 3, 3, 2, 2, dtype=dtype) - 0.5) * spread + 0.5).requires_grad_()
    weights = torch.rand(2, 6, 3, 3, 2, dtype=dtype, requires_grad=True)
    return value, shapes, locations, weights


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("outside", [False, True])
def test_sums_of_rows_are_what_grid_sample_reads_with_its_gradients(
    said: list[str], dtype: torch.dtype, outside: bool
) -> None:
    value, shapes, locations, weights = attention_inputs(dtype, outside=outside)
    starts = shapes.prod(1).cumsum(0) - shapes.prod(1)
    expected = msda_plain(value, shapes, starts, locations, weights)
    function = msda.pytorch_path(lambda *args: pytest.fail("the original ran"), None)
    found = function(value, shapes, locations, weights)
    grad = torch.randn_like(expected)
    tensors = (value, locations, weights)
    torch.testing.assert_close(found, expected)
    for mine, theirs in zip(
        torch.autograd.grad(found, tensors, grad), torch.autograd.grad(expected, tensors, grad), strict=True
    ):
        torch.testing.assert_close(mine, theirs)
    assert said == []


@pytest.mark.parametrize("change", ["bfloat16", "mixed", "too many cells", "no queries"])
def test_what_is_not_summed_by_rows_is_the_originals_bit_for_bit(said: list[str], change: str) -> None:
    value, shapes, locations, weights = (item.detach() for item in attention_inputs(torch.float32))
    if change == "bfloat16":
        value, locations, weights = value.bfloat16(), locations.bfloat16(), weights.bfloat16()
    elif change == "mixed":
        weights = weights.double()
    elif change == "too many cells":
        value = torch.cat((value, value), 1)
    else:
        locations, weights = locations[:, :0], weights[:, :0]
    original = load_object("mmcv.ops.multi_scale_deform_attn.multi_scale_deformable_attn_pytorch")
    results = []
    for function in (original, msda.pytorch_path(original, None)):
        try:
            results.append(function(value, shapes, locations, weights))
        except (RuntimeError, ValueError) as error:
            results.append(str(error))
    assert type(results[0]) is type(results[1])
    assert results[0] == results[1] if isinstance(results[0], str) else torch.equal(*results)
    assert len(said) == 1


def test_a_point_is_the_sum_of_the_cells_around_it_and_of_none_outside() -> None:
    rows = torch.tensor([[1.0], [10.0], [100.0], [1e3], [1e4], [1e5]])  # a map of 3 x 2
    x, y = torch.tensor([[1.25], [-0.5], [-2.0], [2.0]]), torch.tensor([[0.5], [0.0], [0.0], [1e30]])
    found = read_between(rows, x, y, torch.full_like(x, 2.0), 3, 2, torch.zeros(1, 1, dtype=torch.int), 1)
    first = 2 * (0.375 * 10 + 0.125 * 100 + 0.375 * 1e4 + 0.125 * 1e5)
    assert found.flatten().tolist() == [first, 1.0, 0.0, 0.0]


@pytest.mark.parametrize("frozen", [(), (0,), (1, 2, 3), (3,)])
def test_reading_has_the_gradients_of_finite_differences(frozen: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    inputs = [torch.rand(shape, dtype=torch.float64) * 4 - 1 for shape in ((12, 3), (5, 2), (5, 2), (5, 2))]
    for number, item in enumerate(inputs):
        item.requires_grad_(number not in frozen)
    width, height, first = torch.tensor([3, 2]), torch.tensor([2, 3]), torch.tensor([0, 6])
    assert torch.autograd.gradcheck(lambda r, x, y, s: read_between(r, x, y, s, width, height, first, 1), inputs)
    assert torch.autograd.gradcheck(lambda r, x, y, s: read_between(r, x, y, s, 2, 3, first, 1), inputs)


# Deformable convolution


def dcn_inputs(groups: int, deform_groups: int, stride: int) -> list[Tensor]:
    torch.manual_seed(0)
    size = (5 + stride) // stride
    shapes: list[tuple[int, ...]] = [
        (2, 4, 6, 6),
        (2, deform_groups * 18, size, size),
        (2, deform_groups * 9, size, size),
    ]
    shapes += [(6, 4 // groups, 3, 3), (6,)]
    return [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]


@pytest.mark.parametrize(("groups", "deform_groups", "stride"), [(1, 1, 1), (2, 2, 2)])
def test_without_offsets_a_deformable_convolution_is_a_convolution(
    groups: int, deform_groups: int, stride: int
) -> None:
    image, offset, mask, weight, bias = dcn_inputs(groups, deform_groups, stride)
    found = deform_conv.deform_conv(
        image, torch.zeros_like(offset), torch.ones_like(mask), weight, bias, stride, 2, 2, groups, deform_groups
    )
    expected = torch.nn.functional.conv2d(image, weight, bias, stride, 2, 2, groups)
    torch.testing.assert_close(found, expected)


def test_offsets_of_whole_cells_move_what_a_tap_reads_and_the_mask_scales_it() -> None:
    image, offset, mask, weight, _ = dcn_inputs(1, 1, 1)
    moved = torch.zeros_like(offset)
    moved[:, 0::2] = 1  # down
    moved[:, 1::2] = -2  # to the left
    found = deform_conv.deform_conv(image, moved, torch.full_like(mask, 0.5), weight, None, 1, 1)
    # The image moved up by one and right by two, with zeros from outside.
    shifted = torch.nn.functional.pad(image, (2, 0, 0, 1))[:, :, 1:, :6]
    inside = torch.nn.functional.conv2d(torch.nn.functional.pad(shifted, (1, 1, 1, 1)), weight) * 0.5
    torch.testing.assert_close(found[:, :, 1:4, 3:5], inside[:, :, 1:4, 3:5])


@pytest.mark.parametrize(("groups", "deform_groups", "stride"), [(1, 1, 1), (2, 2, 2)])
def test_all_gradients_of_a_deformable_convolution_are_those_of_finite_differences(
    said: list[str], groups: int, deform_groups: int, stride: int
) -> None:
    function: Any = load_object("mmcv.ops.modulated_deform_conv.ModulatedDeformConv2dFunction")
    inputs = dcn_inputs(groups, deform_groups, stride)
    with applied({"mmcv.dcn": {}}):
        assert torch.autograd.gradcheck(
            lambda *tensors: function.apply(*tensors, stride, 1, 1, groups, deform_groups),
            inputs,
            atol=1e-5,
            fast_mode=True,
        )
    assert said == []


def test_a_deformable_convolution_without_bias_or_frozen_gives_no_gradient_where_none_is_wanted() -> None:
    function: Any = load_object("mmcv.ops.modulated_deform_conv.ModulatedDeformConv2dFunction")
    image, offset, mask, weight, _ = dcn_inputs(1, 1, 1)
    with applied({"mmcv.dcn": {}}):
        function.apply(image, offset, mask.detach(), weight.detach(), None, 1, 1).sum().backward()
    assert image.grad is not None
    assert offset.grad is not None
    assert weight.grad is None


def test_an_extension_that_is_there_is_called(said: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deform_conv, "extension_is_there", lambda: True)
    function: Any = load_object("mmcv.ops.modulated_deform_conv.ModulatedDeformConv2dFunction")
    inputs = dcn_inputs(1, 1, 1)
    with applied({"mmcv.dcn": {}}), pytest.raises(ImportError, match="not built"):
        function.apply(*inputs)
    with applied({"mmcv.dcn": {"use": "always"}}):
        function.apply(*inputs, 1, 1)
    assert said == ["the extension is there"]


# Focal loss


FOCAL = "mmcv.ops.focal_loss.SigmoidFocalLossFunction"


def focal_inputs(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    # Class 4 of four is the background.
    return (torch.randn(7, 4, dtype=dtype) * 3).requires_grad_(), torch.tensor([0, 3, 4, 1, 4, 2, 2])


@pytest.mark.parametrize("gamma", [2.0, 1.5])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_the_focal_loss_is_weighted_cross_entropy_with_its_gradients(
    said: list[str], gamma: float, reduction: str
) -> None:
    function: Any = load_object(FOCAL)
    scores, target = focal_inputs()
    with applied({"mmcv.focal_loss": {}}):
        found = function.apply(scores, target, gamma, 0.3, None, reduction)
        assert torch.autograd.gradcheck(lambda x: function.apply(x, target, gamma, 0.3, None, reduction), (scores,))
    wanted = torch.nn.functional.one_hot(target, 5)[:, :4].double()
    sure = torch.where(wanted == 1, scores.sigmoid(), 1 - scores.sigmoid())
    entropy = torch.nn.functional.binary_cross_entropy(scores.sigmoid(), wanted, reduction="none")
    losses = torch.where(wanted == 1, 0.3, 0.7) * (1 - sure) ** gamma * entropy
    # mmcv divides by rows, not by rows and classes.
    torch.testing.assert_close(found, {"none": losses, "mean": losses.sum() / 7, "sum": losses.sum()}[reduction])
    assert said == []


def test_scores_that_are_sure_have_finite_losses_and_gradients() -> None:
    function: Any = load_object(FOCAL)
    scores = torch.tensor([[90.0, -90.0], [-200.0, 200.0]], requires_grad=True)
    with applied({"mmcv.focal_loss": {}}):
        loss = function.apply(scores, torch.tensor([0, 0]), 2.0, 0.25, None, "sum")
        loss.backward()
    # The second row is wrong twice: 0.25 * 200 and 0.75 * 200.
    torch.testing.assert_close(loss, torch.tensor(200.0))
    torch.testing.assert_close(scores.grad, torch.tensor([[0.0, 0.0], [-0.25, 0.75]]))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"weight": torch.ones(4)}, "classes have weights"),
        ({"reduction": "median"}, "arguments that mmcv refuses"),
        ({"target": torch.zeros(6, dtype=torch.int64)}, "arguments that mmcv refuses"),
        ({"target": torch.zeros(7)}, "arguments that mmcv refuses"),
    ],
    ids=str,
)
def test_what_the_focal_loss_is_not_made_for_goes_to_the_extension(
    said: list[str], change: dict[str, Any], reason: str
) -> None:
    function: Any = load_object(FOCAL)
    scores, target = focal_inputs()
    given = {"target": target, "gamma": 2.0, "alpha": 0.25, "weight": None, "reduction": "mean", **change}
    with applied({"mmcv.focal_loss": {}}), pytest.raises(ImportError, match="not built"):
        function.apply(scores, *given.values())
    assert said == [reason]


def test_an_extension_s_focal_loss_that_is_there_is_called(said: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(focal_loss, "extension_is_there", lambda: True)
    with applied({"mmcv.focal_loss": {}}), pytest.raises(ImportError, match="not built"):
        load_object(FOCAL).apply(*focal_inputs())
    assert said == ["the extension is there"]


# Attention of mmcv


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("case", ["itself", "other key", "mask", "another length", "dropout"])
def test_attention_without_weights_is_the_same_attention(said: list[str], batch_first: bool, case: str) -> None:
    torch.manual_seed(0)
    kind: Any = load_object("mmcv.cnn.bricks.transformer.MultiheadAttention")
    layer = kind(8, 2, dropout=0.2 if case == "dropout" else 0.0, batch_first=batch_first)
    query, pos, key = (torch.randn(5, 5, 8, requires_grad=True) for _ in range(3))
    given: dict[str, Any] = {"query_pos": pos}
    if case == "other key":
        given |= {"key": key, "key_pos": torch.randn(5, 5, 8)}
    elif case == "mask":
        given |= {"attn_mask": torch.ones(5, 5, dtype=torch.bool).triu(1)}
    elif case == "another length":
        given |= {"key": torch.randn(5, 7, 8) if batch_first else torch.randn(7, 5, 8)}

    def run() -> tuple[Tensor, ...]:
        torch.manual_seed(1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            output = layer(query, **given)
        return output.detach(), *torch.autograd.grad(output.square().sum(), (query, pos)), torch.rand(())

    expected = run()
    with applied({"mmcv.attention": {}}):
        found = run()
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-5, rtol=1e-5)
    assert len(said) == (case in ("another length", "dropout"))


# Decorators stay in effect


@pytest.mark.parametrize(
    ("id", "path"),
    [
        ("mmcv.attention", "mmcv.cnn.bricks.transformer.MultiheadAttention"),
        ("bevformer.decoder_attention", f"{PARTS}.decoder.CustomMSDeformableAttention"),
    ],
)
def test_old_names_of_arguments_still_work_and_warn(id: str, path: str) -> None:
    torch.manual_seed(0)
    kind: Any = load_object(path)
    layer = kind(8, 2, dropout=0.0)
    query, identity = torch.randn(6, 1, 8), torch.randn(6, 1, 8)
    given = {"reference_points": torch.rand(1, 6, 1, 2), "spatial_shapes": torch.tensor([[2, 3]])}
    expected = layer(query, identity=identity, **given)
    with applied({id: {}}), pytest.warns(DeprecationWarning, match="identity"):
        found = layer(query, residual=identity, **given)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("id", ["bevformer.sca", "bevformer.geometry"])
def test_methods_that_force_float32_get_float32(monkeypatch: pytest.MonkeyPatch, id: str) -> None:
    seen: list[torch.dtype] = []

    class Last(LastResult[Any]):
        def get(self, compute: Any, inputs: Any, also: Any = None) -> Any:
            seen.extend(item.dtype for item in inputs if item.is_floating_point())
            return super().get(compute, inputs, also)

    monkeypatch.setattr(sca, "LastResult", Last)
    net, data = model(dcn=False, fp16=True), batch()
    with applied({id: {}, "bevformer.sca": {}}):
        step(net, data)
    assert set(seen) == {torch.float32}


# Spatial cross attention


def test_a_plan_says_where_each_camera_finds_its_queries_and_each_query_its_cameras() -> None:
    hit = torch.tensor([[1, 0, 0, 1, 1], [0, 0, 1, 0, 1]], dtype=torch.bool)
    mask = torch.stack((hit, torch.ones_like(hit)), 1).unsqueeze(-1).expand(-1, -1, -1, 2)
    points = torch.rand(2, 2, 5, 2, 2)
    plan = sca.plan(mask, points)
    assert plan.longest == 3
    assert plan.taken.tolist() == [0, 3, 4, 2, 4, 0]
    assert plan.there.flatten().tolist() == [1, 1, 1, 1, 1, 0]
    assert plan.counted.tolist() == [[1, 0], [0, 0], [1, 0], [1, 0], [1, 1]]
    assert plan.places[plan.counted.bool()].tolist() == [0, 3, 1, 2, 4]
    assert torch.equal(plan.references[3][:2], points[1, 1][[2, 4]]), "second sample, second camera"
    assert plan.cameras.tolist() == [[1, 1, 1, 1, 2], [2, 2, 2, 2, 2]]


def test_a_batch_that_no_camera_sees_anything_of_is_left_to_the_original(said: list[str]) -> None:
    net, data = model(dcn=False), batch()
    for frames in data["img_metas"]:
        for meta in frames.values():
            meta["lidar2img"] = [np.diag([1.0, 1.0, -1.0, 1.0]) @ camera(0.0)] * 3
            meta["lidar2img"] = [matrix - np.eye(4)[:, [3]] * 0 for matrix in meta["lidar2img"]]
            meta["lidar2img"] = [np.vstack((matrix[:2], [0, 0, 0, -1.0], matrix[3])) for matrix in meta["lidar2img"]]

    def result() -> Any:
        try:
            return step(net, data)[0]
        except (RuntimeError, ValueError) as error:
            return type(error)

    expected = result()
    with applied({"bevformer.sca": {}}):
        found = result()
    assert torch.equal(found, expected) if isinstance(expected, Tensor) else found is expected
    assert "no camera sees any query" in said


@pytest.mark.parametrize(
    "path", ["spatial_cross_attention.MSDeformableAttention3D", "decoder.CustomMSDeformableAttention"]
)
def test_shapes_that_are_not_those_of_the_map_are_refused_as_before(said: list[str], path: str) -> None:
    kind = part(path)
    layer = kind(8, num_heads=2, num_levels=1, num_points=4)
    given = {
        "query": torch.randn(1, 6, 8) if layer.batch_first else torch.randn(6, 1, 8),
        "reference_points": torch.rand(1, 6, 2, 2) if layer.batch_first else torch.rand(1, 6, 1, 2),
        "spatial_shapes": torch.tensor([[3, 3]]),
    }
    with applied({"bevformer.sca": {}, "bevformer.decoder_attention": {}}), pytest.raises(AssertionError):
        layer(**given)
    assert said == ["shapes that are not those of value"]


# Geometry


def test_a_constant_is_made_once_and_again_when_somebody_has_written_into_it() -> None:
    made: list[Tensor] = []
    constants = Constants()

    def make() -> Tensor:
        made.append(torch.arange(3.0))
        return made[-1]

    assert constants.get("a", make) is constants.get("a", make)
    view = constants.get("a", make)[1:]
    view += 1
    assert constants.get("a", make).tolist() == [0, 1, 2]
    assert len(made) == 2


def test_a_model_that_writes_into_reference_points_and_sizes_trains_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Points are shifted in place, as the encoder of BEVFormer once did, and a layer writes into its sizes."""
    encoder, layer = part("encoder.BEVFormerEncoder"), part("temporal_self_attention.TemporalSelfAttention")
    points, attend = encoder.get_reference_points, layer.forward
    known: list[Tensor] = []

    def writing(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = attend(self, *args, **kwargs)
        known.append(kwargs["spatial_shapes"].clone())
        kwargs["spatial_shapes"].zero_()
        return result

    data = batch()

    def run() -> Tensor:
        monkeypatch.setattr(layer, "forward", writing)
        spoiled = encoder.get_reference_points(*BEV, dim="2d", device="cpu")
        spoiled += 1
        return step(model(dcn=False), data)[0]

    expected = run()
    with applied({"bevformer.geometry": {}}):
        found = run()
        assert encoder.get_reference_points is not points
    torch.testing.assert_close(found, expected)
    assert all(torch.equal(shape, torch.tensor([BEV])) for shape in known)


def test_reference_points_are_copies_of_their_own() -> None:
    encoder = part("encoder.BEVFormerEncoder")
    expected = encoder.get_reference_points(3, 2, 4, 2, device="cpu")
    with applied({"bevformer.geometry": {}}):
        first, second = (encoder.get_reference_points(3, 2, 4, 2, device="cpu") for _ in range(2))
    assert torch.equal(first, expected)
    first.zero_()
    assert torch.equal(second, expected)


def test_a_projection_in_float32_is_that_of_float64() -> None:
    encoder = part("encoder.BEVFormerEncoder")
    points = encoder.get_reference_points(6, 5, 4, 2, bs=2, device="cpu")
    metas = [batch(1, seed=seed)["img_metas"][0][0] for seed in (1, 2)]

    class Bare(torch.nn.Module):
        fp16_enabled = False

    with applied({"bevformer.geometry": {}}):
        found, mask = encoder.point_sampling(Bare(), points, RANGE, metas)
    low, high = np.array(RANGE).reshape(2, 3)
    place = points.double().numpy() * (high - low) + low
    for sample, meta in enumerate(metas):
        for index, matrix in enumerate(meta["lidar2img"]):
            seen = place[sample] @ matrix[:3, :3].T + matrix[:3, 3]
            at = seen[..., :2] / np.maximum(seen[..., 2:], 1e-5) / np.array([32, 24])
            inside = (seen[..., 2] > 1e-5) & (at > 0).all(-1) & (at < 1).all(-1)
            assert torch.equal(mask[index, sample], torch.from_numpy(inside.T))
            there = torch.from_numpy(inside.T)
            wanted = torch.from_numpy(at.transpose(1, 0, 2))[there]
            torch.testing.assert_close(found[index, sample][there].double(), wanted, atol=1e-5, rtol=1e-5)


@pytest.fixture
def _settings_as_before() -> Iterator[None]:
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    yield
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


@pytest.mark.usefixtures("_settings_as_before")
@pytest.mark.parametrize(("matmul", "cudnn"), [(False, True), (True, False)])
def test_the_setting_of_convolutions_is_what_upstream_leaves_or_with_conv_tf32_what_it_was(
    matmul: bool, cudnn: bool
) -> None:
    encoder = part("encoder.BEVFormerEncoder")
    points = encoder.get_reference_points(6, 5, 4, 2, device="cpu")
    metas = [batch()["img_metas"][0][0]]

    def left() -> bool:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = matmul, cudnn
        encoder.point_sampling(torch.nn.Identity(), points, RANGE, metas)
        return torch.backends.cudnn.allow_tf32

    expected = left()
    with applied({"bevformer.geometry": {}}):
        assert left() == expected == matmul
    with applied({"bevformer.geometry": {}, "bevformer.conv_tf32": {}}):
        assert left() == cudnn


# GridMask


@pytest.mark.parametrize(
    "settings", [{}, {"mode": 0}, {"use_h": False}, {"rotate": 3}, {"offset": True}, {"prob": 0.3}]
)
@pytest.mark.parametrize("size", [(24, 32), (7, 5), (2, 3)])
def test_a_grid_mask_is_the_same_mask_of_the_same_draws(
    said: list[str], settings: dict[str, Any], size: tuple[int, int]
) -> None:
    given = {"use_h": True, "use_w": True, "mode": 1, "prob": 0.7, **settings}
    mask: Any = load_object(f"{PLUGIN}.models.utils.grid_mask.GridMask")(**given)
    images = torch.randn(2, 3, *size)
    if size[0] == 2:
        images = torch.randn(2, 3, 3, 3)

    def run() -> list[Any]:
        np.random.seed(0)
        results = [mask(images) for _ in range(6)]
        return [*results, np.random.rand()]

    expected = run()
    with applied({"bevformer.grid_mask": {}}):
        found = run()
    for mine, theirs in zip(found[:-1], expected[:-1], strict=True):
        assert torch.equal(mine, theirs)
    assert found[-1] == expected[-1]
    assert bool(said) == bool(settings.keys() & {"rotate", "offset"})


# Assigner


def test_costs_of_all_layers_are_copied_once_and_nothing_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    net, data = model(dcn=False), batch(2, boxes=(3, 0))
    copies: list[Tensor] = []
    cpu = Tensor.cpu

    def counted(self: Tensor) -> Tensor:
        copies.append(self)
        return cpu(self)

    monkeypatch.setattr(Tensor, "cpu", counted)
    step(net, data)
    before = len(copies)
    with applied({"bevformer.assigner": {}}):
        step(net, data)
    assert before == 3, "decoder layers with boxes"
    assert len(copies) - before == 1


def test_matches_are_gone_after_the_loss_also_if_it_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    net, data = model(dcn=False), batch()
    head = type(net.pts_bbox_head)
    with applied({"bevformer.assigner": {}}):
        step(net, data)
        assert not hasattr(net.pts_bbox_head, assigner._MATCHES)
        monkeypatch.setattr(head, "loss_single", lambda *args: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            step(net, data)
    assert not hasattr(net.pts_bbox_head, assigner._MATCHES)


def test_another_sampler_is_left_to_the_original(said: list[str]) -> None:
    net, data = model(dcn=False), batch()
    net.pts_bbox_head.sampler = type("OtherSampler", (type(net.pts_bbox_head.sampler),), {})()
    expected = step(net, data)[0]
    with applied({"bevformer.assigner": {}}):
        assert torch.equal(step(net, data)[0], expected)
    assert said[0] == "another assigner or sampler"
