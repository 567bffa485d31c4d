# SPDX-License-Identifier: Apache-2.0
"""The small model, with and without groups, in a process that must not keep its packages named `mmcv` and the like."""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from turbo_hydra import Registry
from turbo_hydra.engine.declarations import Group
from turbo_hydra.engine.kinds import function_of, in_kind_of
from turbo_hydra.engine.objects import load_object

CATALOGS = ("turbo_hydra.catalogs.mmcv", "turbo_hydra.catalogs.models.bevformer.groups")
REPOSITORY = Path(__file__).resolve().parent / "repository"
PLUGIN = "projects.mmdet3d_plugin"
PARTS = f"{PLUGIN}.bevformer.modules"
RANGE = [-8.0, -8.0, -2.0, 8.0, 8.0, 2.0]
BEV, QUERIES, CLASSES, CAMERAS, WIDTH = (5, 4), 7, 3, 3, 16
_known: dict[str, ModuleType] = {}


def _ours(name: str) -> bool:
    return name.partition(".")[0] in ("mmcv", "mmdet", "mmdet3d", "projects")


@contextmanager
def repository() -> Iterator[None]:
    """Let mmcv, mmdet, mmdet3d and the plugin be the small ones inside the block, the same modules each time."""
    before = {name: module for name, module in sys.modules.items() if _ours(name)}
    for name in before:
        del sys.modules[name]
    sys.modules.update(_known)
    sys.path.insert(0, str(REPOSITORY))
    try:
        for module in (
            f"{PLUGIN}.bevformer.detectors.bevformer",
            f"{PLUGIN}.datasets.builder",
            "mmdet3d.datasets.pipelines.loading",
        ):
            importlib.import_module(module)
        yield
    finally:
        sys.path.remove(str(REPOSITORY))
        for name in [name for name in sys.modules if _ours(name)]:
            _known[name] = sys.modules.pop(name)
        sys.modules.update(before)


def groups() -> Mapping[str, Group]:
    """All groups of the two catalogs that do more than let the real code run at all."""
    registry = Registry()
    for catalog in CATALOGS:
        registry.load(catalog)
    return {id: group for id, group in registry.groups.items() if ".compat_" not in id}


def _owner(path: str) -> Any:
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError:
        return load_object(path)


@contextmanager
def applied(ids: Mapping[str, Mapping[str, Any]]) -> Iterator[None]:
    """Put groups in place without the engine, each with its options, in the order in which they are declared."""
    known = groups()
    done: set[tuple[str, str]] = set()
    with pytest.MonkeyPatch.context() as patch:
        for id in [id for id in known if id in ids]:
            group = known[id]
            options = group.options(**ids[id]) if group.options else None
            for member in group.members:
                if (member.target, member.replacement) in done:
                    continue  # as the engine does it: one change that two groups make
                done.add((member.target, member.replacement))
                place, _, name = member.target.rpartition(".")
                raw = vars(_owner(place))[name]
                new = in_kind_of(raw, load_object(member.replacement)(function_of(raw), options))
                patch.setattr(_owner(place), name, new)
                for module in [value for key, value in sys.modules.items() if _ours(key)]:
                    for other in [key for key, value in vars(module).items() if value is raw]:
                        patch.setattr(module, other, new)
        yield


def part(path: str) -> Any:
    """A class or function of the plugin's modules."""
    return load_object(f"{PARTS}.{path}")


def model(*, dropout: float = 0.1, dcn: bool = True, fp16: bool = False, seed: int = 0) -> Any:
    """A small BEVFormer in training."""
    torch.manual_seed(seed)
    layer = {"embed_dims": WIDTH, "num_heads": 4, "feedforward_channels": 24, "dropout": dropout}
    cross = {
        "num_cams": CAMERAS,
        "deformable_attention": {"num_heads": 4, "num_levels": 2, "num_points": 4},
    }
    transformer = {
        "embed_dims": WIDTH,
        "num_feature_levels": 2,
        "num_cams": CAMERAS,
        "encoder": {"num_layers": 2, "pc_range": RANGE, "num_points_in_pillar": 2, **layer, "cross": cross},
        "decoder": {"num_layers": 3, **layer},
    }
    head = {
        "bev_h": BEV[0],
        "bev_w": BEV[1],
        "num_query": QUERIES,
        "num_classes": CLASSES,
        "pc_range": RANGE,
        "transformer": transformer,
    }
    made: nn.Module = load_object(f"{PLUGIN}.bevformer.detectors.bevformer.BEVFormer")(WIDTH, 2, head, dcn=dcn)
    for module in made.modules():
        if hasattr(module, "fp16_enabled"):
            module.fp16_enabled = fp16  # type: ignore[assignment]
    return made.train()


def camera(turn: float) -> Any:
    """A matrix from the car's coordinates to an image of 24 x 32, looking along an angle."""
    cos, sin = math.cos(turn), math.sin(turn)
    to_camera = np.array([[sin, -cos, 0, 0], [0, 0, -1, 0.3], [cos, sin, 0, 0.2], [0, 0, 0, 1]])
    return np.array([[14.0, 0, 16, 0], [0, 14, 12, 0], [0, 0, 1, 0], [0, 0, 0, 1]]) @ to_camera


def batch(size: int = 1, *, frames: int = 3, boxes: tuple[int, ...] = (3,), seed: int = 1) -> dict[str, Any]:
    """Images, what is known of them, and boxes of which there are as many as `boxes` says, in turn."""
    random = np.random.default_rng(seed)
    generator = torch.Generator().manual_seed(seed)

    def meta(frame: int) -> dict[str, Any]:
        signals = random.normal(size=18)
        signals[-1] = frame % 4
        return {
            "lidar2img": [camera(2 * math.pi * index / CAMERAS + random.normal() / 20) for index in range(CAMERAS)],
            "img_shape": [(24, 32, 3)] * CAMERAS,
            "can_bus": signals,
            "prev_bev_exists": frame > 0,
        }

    def truth(count: int) -> Any:
        tensor = torch.rand(count, 9, generator=generator) + 0.5
        return SimpleNamespace(tensor=tensor, gravity_center=tensor[:, :3] * 4)

    counts = [boxes[index % len(boxes)] for index in range(size)]
    return {
        "img": torch.randn(size, frames, CAMERAS, 3, 24, 32, generator=generator),
        "img_metas": [{frame: meta(frame) for frame in range(frames)} for _ in range(size)],
        "gt_bboxes_3d": [truth(count) for count in counts],
        "gt_labels_3d": [torch.randint(0, CLASSES, (count,), generator=generator) for count in counts],
    }


def step(net: nn.Module, data: Mapping[str, Any], seed: int = 3) -> tuple[Tensor, dict[str, Tensor | None]]:
    """Losses and gradients of one forward and backward at a seed, and where the draws have come to."""
    torch.manual_seed(seed)
    np.random.seed(seed)
    net.zero_grad()
    losses = torch.stack([value.float() for value in net(**data).values()])
    losses.sum().backward()
    drawn = torch.tensor([np.random.randint(1 << 30), torch.randint(1 << 30, ()).item()])
    return torch.cat((losses.detach().double(), drawn.double())), {
        name: None if parameter.grad is None else parameter.grad.clone() for name, parameter in net.named_parameters()
    }


def same(found: Any, expected: Any, atol: float | None) -> None:
    """Losses, draws and gradients are equal: bit by bit where `atol` is None, else up to it and as much of each."""
    rtol = atol or 0.0
    torch.testing.assert_close(found[0], expected[0], atol=atol or 0.0, rtol=rtol)
    assert torch.equal(found[0][-2:], expected[0][-2:]), "what is drawn"
    assert found[1].keys() == expected[1].keys()
    for name, gradient in expected[1].items():
        mine = found[1][name]
        assert (mine is None) == (gradient is None), name
        if gradient is not None:
            scale = max(1.0, gradient.abs().max().item())
            try:
                torch.testing.assert_close(mine, gradient, atol=(atol or 0.0) * scale, rtol=rtol)
            except AssertionError as error:
                raise AssertionError(f"{name}: {error}") from None
