# SPDX-License-Identifier: Apache-2.0
"""All cameras of a batch go through the image encoder at once, and each gets its own embedding."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.openpi.small import applied, batch, model, same, step
from turbo_hydra.catalogs.models.openpi import camera_batch

GROUP: dict[str, dict[str, Any]] = {"openpi.camera_batch": {}}


def calls(pi0: Any) -> list[int]:
    """Number of images of each call of the encoder, filled while the model runs."""
    seen: list[int] = []
    embed: Callable[[Tensor], Tensor] = pi0.paligemma_with_expert.embed_image

    def noted(images: Tensor) -> Tensor:
        seen.append(len(images))
        return embed(images)

    pi0.paligemma_with_expert.embed_image = noted
    return seen


@pytest.mark.parametrize(("cameras", "kept"), [((True, True, True), 3), ((True, True, False), 2)])
def test_cameras_go_together_and_train_as_one_by_one(cameras: tuple[bool, ...], kept: int) -> None:
    pi0, data = model(), batch(3, cameras=cameras, prompts=(5, 7, 12))
    expected = step(pi0, data)
    seen = calls(pi0)
    with applied({**GROUP, "openpi.prefix_trim": {}}):
        same(step(pi0, data), expected, 1e-6)
    # The checkpoint calls it once more in the backward pass.
    assert seen == [3 * kept] * 2


def test_one_pass_is_left_when_nothing_is_computed_twice() -> None:
    pi0, data = model(), batch(2)
    seen = calls(pi0)
    with applied({"openpi.pi0_compile": {"mode": "none"}, **GROUP}):
        step(pi0, data)
    assert seen == [6]


def embedded(images: list[Tensor], training: bool = True) -> tuple[list[Tensor], list[int]]:
    """What a prefix that is nothing but its images gets, and the sizes of the encoder's calls."""
    seen: list[int] = []

    def encoder(image: Tensor) -> Tensor:
        seen.append(len(image))
        return image.flatten(1).double().cumsum(1)

    def image_embed_func(image: Tensor) -> Tensor:
        return encoder(image)

    through = camera_batch.apply_checkpoint(lambda self, func, *args: func(*args), None)

    def original(self: Any, images: list[Tensor], *_: Any) -> list[Tensor]:
        return [through(self, image_embed_func, image) for image in images]

    result = camera_batch.embed_prefix(original, None)(SimpleNamespace(training=training), images, None, None, None)
    return result, seen


def test_batches_of_different_sizes_are_told_apart() -> None:
    images = [torch.rand(size, 3, 2, 2) for size in (2, 1, 4)]
    result, seen = embedded(images)
    assert seen == [7]
    for found, image in zip(result, images, strict=True):
        assert torch.equal(found, image.flatten(1).double().cumsum(1))


def test_an_image_that_stands_for_two_cameras_is_both() -> None:
    image = torch.rand(2, 3, 2, 2)
    result, seen = embedded([image, image])
    assert seen == [4]
    assert torch.equal(result[0], result[1])


@pytest.mark.parametrize(
    ("images", "training"),
    [
        ([torch.rand(2, 3, 4, 4)], True),
        ([torch.rand(2, 3, 4, 4), torch.rand(2, 3, 2, 2)], True),
        ([torch.rand(2, 3, 4, 4), torch.rand(2, 3, 4, 4).double()], True),
        ([torch.rand(2, 3, 4, 4), torch.rand(2, 3, 4, 4)], False),
    ],
    ids=["one", "two sizes", "two dtypes", "sampling"],
)
def test_what_cannot_go_together_goes_one_by_one(images: list[Tensor], training: bool) -> None:
    result, seen = embedded(images, training)
    assert seen == [2] * len(images)
    for found, image in zip(result, images, strict=True):
        assert torch.equal(found, image.flatten(1).double().cumsum(1))


def test_an_error_in_the_encoder_leaves_nothing_behind() -> None:
    def fails(self: Any, *_: Any) -> None:
        raise RuntimeError("out of memory")

    images = [torch.rand(2, 3, 2, 2)] * 2
    with pytest.raises(RuntimeError, match="out of memory"):
        camera_batch.embed_prefix(fails, None)(SimpleNamespace(training=True), images, None, None, None)
    assert camera_batch._cameras.get() is None
