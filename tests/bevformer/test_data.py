# SPDX-License-Identifier: Apache-2.0
"""What a sample's images are, how batches are pinned, and what the optimizer and DDP are given."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest
import torch

from tests.bevformer.small import PLUGIN, applied
from turbo_hydra.engine.objects import load_object

FILES = ["front.jpg", "left.jpg", "right.jpg"]


def load(**settings: Any) -> dict[str, Any]:
    loader: Any = load_object("mmdet3d.datasets.pipelines.loading.LoadMultiViewImageFromFiles")(**settings)
    found: dict[str, Any] = loader({"img_filename": FILES, "other": 1})
    return found


def equal(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(one[0], np.ndarray):
        return all(equal(mine, theirs) for mine, theirs in zip(one, other, strict=True))
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other)
    return bool(one == other)


@pytest.mark.parametrize("to_float32", [True, False])
@pytest.mark.parametrize("frames", [0, 1])
def test_images_are_the_same_numbers_each_in_an_array_of_its_own(to_float32: bool, frames: int) -> None:
    expected = load(to_float32=to_float32)
    with applied({"bevformer.data": {"frames": frames}}):
        found = load(to_float32=to_float32)
        assert equal(found, expected)
        assert list(found) == list(expected)
        assert all(image.flags.c_contiguous for image in found["img"])
        # What augmentation writes is the caller's, also where decoded images are kept.
        for image in found["img"]:
            image += 1
        assert equal(load(to_float32=to_float32), expected)


def test_a_kept_frame_is_decoded_once_and_the_oldest_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[str] = []
    mmcv = importlib.import_module("mmcv")
    imread = mmcv.imread

    def noting(file: str, kind: str) -> Any:
        decoded.append(file)
        return imread(file, kind)

    monkeypatch.setattr(mmcv, "imread", noting)
    loader: Any = load_object("mmdet3d.datasets.pipelines.loading.LoadMultiViewImageFromFiles")()
    with applied({"bevformer.data": {"frames": 2}}):
        for name in ("a", "b", "a", "c", "a", "b"):
            loader({"img_filename": [name]})
    assert decoded == ["a", "b", "c", "b"]


def test_images_of_different_shapes_are_refused_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    mmcv = importlib.import_module("mmcv")
    monkeypatch.setattr(mmcv, "imread", lambda file, kind: np.zeros((len(file), 2, 3), np.uint8))
    with applied({"bevformer.data": {}}), pytest.raises(ValueError, match="same shape"):
        load()


def build(**kwargs: Any) -> Any:
    data = [{"img": torch.full((2,), float(index)), "img_metas": {"index": index}} for index in range(4)]
    return load_object(f"{PLUGIN}.datasets.builder.build_dataloader")(data, 2, kwargs.pop("workers", 0), **kwargs)


def test_a_loader_has_more_batches_ready_unless_it_is_told_otherwise() -> None:
    with applied({"bevformer.data": {}}):
        assert build(workers=1).prefetch_factor == 4
        assert build(workers=1, prefetch_factor=3).prefetch_factor == 3
        assert build().prefetch_factor is None
        assert not build().pin_memory, "nothing to copy to"
    with applied({"bevformer.data": {"prefetch_factor": 0}}):
        assert build(workers=1).prefetch_factor == 2


def test_batches_in_mmcvs_containers_are_pinned_where_there_is_an_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    with applied({"bevformer.data": {}}):
        loader = build()
    assert loader.pin_memory
    from turbo_hydra.catalogs.mmcv import pinned

    monkeypatch.setattr(pinned, "pin_memory", lambda data: [[("pinned", item) for item in part] for part in data])
    batch = loader.collate_fn([loader.dataset[0], loader.dataset[1]])
    container: Any = load_object("mmcv.parallel.DataContainer")
    assert all(isinstance(item, container) for item in batch.values())
    from torch.utils.data._utils.pin_memory import pin_memory

    found = pin_memory(batch, "cuda")
    assert [[mark for mark, _ in part] for part in found["img"].data] == [["pinned", "pinned"]]
    assert found["img_metas"].data == [[{"index": 0}, {"index": 1}]], "what stays on the host is not pinned"
    assert found["img_metas"].cpu_only


def test_training_takes_the_fused_optimizer_and_leaves_the_graph_and_what_is_given_as_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: list[dict[str, Any]] = []

    def init(self: Any, module: Any, broadcast_buffers: bool = True, **kwargs: Any) -> None:
        given.append({"broadcast_buffers": broadcast_buffers, **kwargs})

    ddp: Any = torch.nn.parallel.DistributedDataParallel
    monkeypatch.setattr(ddp, "__init__", init)
    weights = [torch.nn.Parameter(torch.ones(2)) for _ in range(2)]
    with applied({"bevformer.training": {}}):
        optimizer = torch.optim.AdamW([{"params": [item]} for item in weights], lr=1e-3)
        ddp(torch.nn.Linear(1, 1), broadcast_buffers=False, find_unused_parameters=True)
    assert [group["fused"] for group in optimizer.param_groups] == [True, True]
    assert given == [{"broadcast_buffers": False, "find_unused_parameters": True, "gradient_as_bucket_view": True}]
