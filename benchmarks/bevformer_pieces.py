# SPDX-License-Identifier: Apache-2.0
"""What single replacements are worth where BEVFormer calls them, at real size on a CPU.

    python -m benchmarks.bevformer_pieces --repo CHECKOUT [--size tiny] [--rounds 8] [PIECE...]

All groups are applied; each piece is called as it stands and as upstream has it (what the dispatcher wraps), in turn,
in random order in each round, forward and backward where it has one. The clock is the CPU time of the thread.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import random
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import turbo_hydra
from benchmarks.bevformer_parts import Parts, upstream
from turbo_hydra.measure.statistics import median, ratio_interval


def pieces(
    parts: Parts, height: int, width: int
) -> dict[str, tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]]:
    """For each piece what stands at its site, and the arguments of a call."""
    import mmcv
    import numpy as np
    import torch
    from mmcv.ops.multi_scale_deform_attn import multi_scale_deformable_attn_pytorch as attend
    from mmdet3d.datasets.pipelines.loading import LoadMultiViewImageFromFiles

    plugin = "projects.mmdet3d_plugin"
    distortion: Any = importlib.import_module(f"{plugin}.datasets.pipelines.transform_3d")
    masking: Any = importlib.import_module(f"{plugin}.models.utils.grid_mask")

    head = parts.head
    encoder, layer = head.transformer.encoder, head.transformer.encoder.layers[0]
    tsa, sca = layer.attentions
    high, wide, channels = head.bev_h, head.bev_w, head.transformer.embed_dims
    grid = torch.tensor([[high, wide]])
    maps = torch.tensor([item.shape[-2:] for item in parts.features])
    starts = maps.prod(1).cumsum(0) - maps.prod(1)
    points = encoder.get_reference_points(high, wide, 8.0, encoder.num_points_in_pillar, bs=1, device="cpu")
    flat = encoder.get_reference_points(high, wide, dim="2d", bs=2, device="cpu")
    seen, mask = encoder.point_sampling(points, head.pc_range, parts.metas)
    query = torch.randn(1, high * wide, channels, requires_grad=True)
    both = torch.randn(2, high * wide, channels, requires_grad=True)
    cells = int(maps.prod(1).sum())
    features = torch.randn(6, cells, 1, channels, requires_grad=True)

    def reads(batch: int, shapes: Any, queries: int, levels: int, count: int) -> tuple[Any, ...]:
        value = torch.randn(batch, int(shapes.prod(1).sum()), 8, channels // 8, requires_grad=True)
        locations = torch.rand(batch, queries, 8, levels, count, 2, requires_grad=True)
        return value, shapes, locations, torch.rand(batch, queries, 8, levels, count, requires_grad=True)

    decoded = [np.random.default_rng(i).integers(0, 256, (height, width, 3), dtype=np.uint8) for i in range(6)]
    mmcv.imread = lambda file, kind: decoded[int(file)]
    load, augment = LoadMultiViewImageFromFiles(to_float32=True), distortion.PhotoMetricDistortionMultiViewImage()

    def loaded(call: Callable[..., Any], results: dict[str, Any]) -> Any:
        np.random.seed(0)
        return augment(call(load, dict(results)))

    def at(owner: Any, name: str) -> Any:
        return getattr(type(owner), name)

    images = torch.randn(6, 3, height, width)
    grid_mask = masking.GridMask(True, True, rotate=1, offset=False, ratio=0.5, mode=1, prob=2.0).train()
    predicted = {
        "all_cls_scores": parts.scores,
        "all_bbox_preds": parts.preds,
        "enc_cls_scores": None,
        "enc_bbox_preds": None,
    }
    hit = mask[:, 0].any(-1).sum(1).max()
    empty = torch.zeros(1, high, wide)
    of_grid = {"reference_points": flat, "spatial_shapes": grid, "level_start_index": torch.tensor([0])}
    of_maps = {
        "spatial_shapes": maps,
        "level_start_index": starts,
        "reference_points_cam": seen,
        "bev_mask": mask,
    }
    return {
        "msda in tsa": (attend, reads(2, grid, high * wide, 1, 4), {}),
        "msda in sca": (attend, reads(6, maps, int(hit), len(maps), 8), {}),
        "msda in decoder": (attend, reads(1, grid, head.query_embedding.weight.shape[0], 1, 4), {}),
        "tsa": (at(tsa, "forward"), (tsa, query, both, both), of_grid),
        "sca": (at(sca, "forward"), (sca, query, features, features), of_maps),
        "geometry: points": (encoder.get_reference_points, (high, wide, 8.0, 4), {"device": "cpu"}),
        "geometry: projection": (at(encoder, "point_sampling"), (encoder, points, head.pc_range, parts.metas), {}),
        "geometry: encoding": (at(head.positional_encoding, "forward"), (head.positional_encoding, empty), {}),
        "grid_mask": (at(grid_mask, "forward"), (grid_mask, images), {}),
        "assigner: loss": (at(head, "loss"), (head, [parts.boxes], [parts.labels], predicted), {}),
        "data: load and distort": (at(load, "__call__"), ({"img_filename": list("012345")},), {"_by": loaded}),
    }  # fmt: skip


def call(function: Callable[..., Any], given: tuple[Any, ...], named: dict[str, Any]) -> float:
    """CPU milliseconds of a forward, and of a backward where there is a gradient."""
    import torch

    named = dict(named)
    by = named.pop("_by", None)
    torch.manual_seed(0)
    start = time.thread_time_ns()
    output = by(function, *given) if by else function(*given, **named)
    if isinstance(output, dict) and "img" not in output:
        output = sum(output.values())
    if isinstance(output, torch.Tensor) and output.requires_grad:
        output.sum().backward()
    return (time.thread_time_ns() - start) / 1e6


def main() -> None:
    """Print a line a piece."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("pieces", nargs="*")
    parser.add_argument("--repo", type=Path, required=True)
    parser.add_argument("--size", default="tiny", choices=("tiny", "small", "base"))
    parser.add_argument("--rounds", type=int, default=8)
    args = parser.parse_args()
    sys.path.insert(0, str(args.repo.resolve()))
    with contextlib.redirect_stdout(sys.stderr):
        turbo_hydra.apply(model="bevformer")
        import torch

        torch.set_num_threads(1)
        torch.manual_seed(0)
        parts = Parts(upstream(str(args.repo.resolve()), args.size, "cpu", whole=False), "cpu")
    height, width = parts.metas[0]["img_shape"][0][:2]
    order = random.Random(0)
    print("| piece | upstream | here | times as fast, 95 % interval |\n|---|---|---|---|")
    for name, (function, given, named) in pieces(parts, height, width).items():
        if args.pieces and name not in args.pieces:
            continue
        sides = {"upstream": partial(call, function.__wrapped__), "here": partial(call, function)}  # type: ignore[attr-defined]
        times: dict[str, list[float]] = {side: [run(given, named)][:0] for side, run in sides.items()}
        for _ in range(args.rounds):
            for side in order.sample(list(sides), 2):
                times[side].append(sides[side](given, named))
        ratio = ratio_interval([a / b for a, b in zip(times["upstream"], times["here"], strict=True)])
        print(
            f"| {name} | {median(times['upstream']):.1f} ms | {median(times['here']):.1f} ms | "
            f"{ratio.value:.2f} [{ratio.low:.2f}, {ratio.high:.2f}] |",
            flush=True,
        )


if __name__ == "__main__":
    main()
