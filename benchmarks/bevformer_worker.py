# SPDX-License-Identifier: Apache-2.0
"""A process of `benchmarks.bevformer`: it applies its groups, makes the model, and takes turns when it is told to."""

from __future__ import annotations

import importlib
import json
import math
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import turbo_hydra
from turbo_hydra.config import OptimizationConfigCatalog, load_catalogs

# Height and width of the images, and strides of the feature maps.
IMAGES = {"tiny": (480, 800, (32,)), "small": (736, 1280, (32,)), "base": (928, 1600, (8, 16, 32, 64))}
# Of nuScenes' cameras: yaw in degrees, and focal length in pixels of an image 1600 wide.
CAMERAS = ((0, 1266), (-55, 1266), (55, 1266), (180, 809), (110, 1256), (-110, 1256))
SYNCS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "hipStreamSynchronize")


def config_of(row: str, base: str, folder: Path) -> tuple[Path, list[str]]:
    """A config for the row, and the groups that a row of their own is worth."""
    import yaml

    configs = OptimizationConfigCatalog()
    known = configs.load(Path(base) if base.endswith(".yaml") else configs.model_path(base))
    declared = load_catalogs(known).groups
    speed = [id for id in known.groups if declared[id].purpose == "optimization"]
    on = {id for id in speed if known.groups[id]}
    sign, name = (row[0], row[1:]) if row[0] in "+-" else ("", row)
    if name not in ("none", "all") and name not in speed:
        raise SystemExit(f"no group '{name}'; there are {', '.join(speed)}")
    chosen = {"none": set(), "all": on, "-": on - {name}, "+": on | {name}}.get(sign or name, {name})
    groups: dict[str, dict[str, bool]] = {}
    for id in speed:
        catalog, _, short = id.partition(".")
        groups.setdefault(catalog, {})[short] = id in chosen
    file = folder / "optimization.yaml"
    of = {"schema_version": "turbo_hydra/optimization-config/v1", "kind": "OptimizationConfig", "extends": [base]}
    file.write_text(yaml.safe_dump({**of, "groups": groups}), encoding="utf-8")
    return file, [id for id in speed if id in on]


def metas(height: int, width: int) -> list[dict[str, Any]]:
    """What a sample says of its images: six cameras on a car that has moved."""
    import numpy as np

    matrices = []
    for yaw, focal in CAMERAS:
        cos, sin = math.cos(math.radians(yaw)), math.sin(math.radians(yaw))
        to_camera = np.array([[sin, -cos, 0, 0], [0, 0, -1, 0.3], [cos, sin, 0, -1.0], [0, 0, 0, 1]])
        scale = width / 1600
        seen = np.array(
            [[focal * scale, 0, width / 2, 0], [0, focal * scale, height / 2, 0], [0, 0, 1, 0], [0, 0, 0, 1]]
        )
        matrices.append(seen @ to_camera)
    can_bus = np.linspace(-1, 1, 18)
    can_bus[:2], can_bus[-2:] = (1.5, 0.2), (0.05, 3.0)
    return [{"lidar2img": matrices, "img_shape": [(height, width, 3)] * 6, "can_bus": can_bus}]


def upstream(repo: str, size: str, device: str) -> dict[str, Any]:
    """BEVFormer's head as its config has it, random features, and boxes to match."""
    import torch
    from mmcv import Config
    from mmdet.models import build_head
    from mmdet3d.core.bbox import LiDARInstance3DBoxes

    importlib.import_module("projects.mmdet3d_plugin")
    config = Config.fromfile(f"{repo}/projects/configs/bevformer/bevformer_{size}.py")
    head = build_head({**config.model.pts_bbox_head, "train_cfg": config.model.train_cfg.pts})
    head.init_weights()
    height, width, strides = IMAGES[size]
    sizes = [(math.ceil(height / stride), math.ceil(width / stride)) for stride in strides]
    boxes = torch.rand(30, 9)
    boxes[:, :2] = (boxes[:, :2] - 0.5) * 90
    boxes[:, 3:6] += 1.0
    return {
        "head": head.to(device),
        "features": [torch.randn(1, 6, head.embed_dims, *cells) for cells in sizes],
        "metas": metas(height, width),
        "boxes": LiDARInstance3DBoxes(boxes, box_dim=9),
        "labels": torch.randint(0, head.num_classes, (30,)),
    }


class Parts:
    """One forward and backward of each part; results and gradients by name."""

    def __init__(self, made: dict[str, Any], device: str) -> None:
        import torch

        self.head = made["head"].train()
        self.device, self.metas, self.boxes = device, made["metas"], made["boxes"]
        self.features = [item.to(device).requires_grad_() for item in made["features"]]
        self.labels = made["labels"].to(device)
        head, transformer = self.head, self.head.transformer
        cells, width = head.bev_h * head.bev_w, transformer.embed_dims
        self.bev = torch.randn(1, cells, width).to(device).requires_grad_()
        self.before = torch.randn(1, cells, width).to(device)
        layers, queries = len(transformer.decoder.layers), head.query_embedding.weight.shape[0]
        self.scores = torch.randn(layers, 1, queries, head.num_classes).to(device).requires_grad_()
        self.preds = torch.randn(layers, 1, queries, 10).to(device).requires_grad_()

    def encoder(self) -> dict[str, Any]:
        output = self.head(self.features, self.metas, self.before.clone(), only_bev=True)
        _objective(output).backward()
        return {"bev": output, "features": self.features[0].grad}

    def history(self) -> dict[str, Any]:
        import torch

        self.head.eval()
        with torch.no_grad():
            output = self.head(self.features, self.metas, self.before.clone(), only_bev=True)
        self.head.train()
        return {"history": output}

    def decoder(self) -> dict[str, Any]:
        import torch

        transformer = self.head.transformer
        position, query = self.head.query_embedding.weight.unsqueeze(1).chunk(2, -1)
        states, references = transformer.decoder(
            query=query,
            key=None,
            value=self.bev.permute(1, 0, 2),
            query_pos=position,
            reference_points=transformer.reference_points(position.permute(1, 0, 2)).sigmoid(),
            reg_branches=self.head.reg_branches,
            cls_branches=None,
            spatial_shapes=torch.tensor([[self.head.bev_h, self.head.bev_w]], device=self.device),
            level_start_index=torch.tensor([0], device=self.device),
            img_metas=self.metas,
        )
        _objective(states).backward()
        return {"states": states, "references": references, "value": self.bev.grad}

    def loss(self) -> dict[str, Any]:
        predicted = {
            "all_cls_scores": self.scores,
            "all_bbox_preds": self.preds,
            "enc_cls_scores": None,
            "enc_bbox_preds": None,
        }
        losses = self.head.loss([self.boxes], [self.labels], predicted, img_metas=self.metas)
        sum(losses.values()).backward()
        return {**losses, "scores": self.scores.grad, "preds": self.preds.grad}

    def run(self, name: str, seed: int) -> dict[str, Any]:
        import torch

        torch.manual_seed(seed)
        self.head.zero_grad(set_to_none=True)
        for item in (*self.features, self.bev, self.scores, self.preds):
            item.grad = None
        return getattr(self, name)()  # type: ignore[no-any-return]


def _objective(output: Any) -> Any:
    """A sum with other weights everywhere: what a norm has made has no gradient by its own size."""
    import torch

    numbers = torch.arange(output.numel(), device=output.device, dtype=output.dtype)
    return (output * numbers.sin().view(output.shape)).mean()


def turn(parts: Parts, seed: int) -> dict[str, Any]:
    """Times of all parts, and sums of what they gave."""
    import torch

    ms, sums = {}, {}
    for name in ("encoder", "history", "decoder", "loss"):
        if parts.device == "cpu":
            start = time.thread_time_ns()
            found = parts.run(name, seed)
            ms[name] = (time.thread_time_ns() - start) / 1e6
        else:
            # From an idle device to an idle device: what the host takes to launch is in it.
            torch.cuda.synchronize()
            events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
            events[0].record()
            found = parts.run(name, seed)
            events[1].record()
            torch.cuda.synchronize()
            ms[name] = events[0].elapsed_time(events[1])
        sums.update({f"{name}.{key}": float(value.detach().double().abs().sum()) for key, value in found.items()})
    return {"ms": ms, "sums": sums}


def trace(parts: Parts, seed: int) -> dict[str, Any]:
    """How often the host waits for the device in each part, and how many kernels it launches."""
    import torch

    counts: dict[str, Any] = {}
    for name in ("encoder", "history", "decoder", "loss"):
        torch.cuda.synchronize()
        activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
        with torch.profiler.profile(activities=activities) as profile:
            parts.run(name, seed)
        names = [event.name for event in profile.events()]
        # The last one is the profiler's own.
        counts[name] = {
            "syncs": sum(name in SYNCS for name in names) - 1,
            "launches": sum("LaunchKernel" in name for name in names),
        }
    return counts


def operators(parts: Parts) -> dict[str, Any]:
    """The attention's kernel beside mmcv's operator where it is built, at the shapes of each attention."""
    import torch

    from turbo_hydra.catalogs.mmcv.deform_conv import extension_is_there
    from turbo_hydra.kernels import msda

    head = parts.head
    maps = [tuple(item.shape[-2:]) for item in parts.features]
    grid, width = [(head.bev_h, head.bev_w)], head.transformer.embed_dims // 8
    cells, queries = head.bev_h * head.bev_w, head.query_embedding.weight.shape[0]
    cases = {"sca": (6, maps, cells // 4, 8), "tsa": (2, grid, cells, 4), "decoder": (1, grid, queries, 4)}
    found: dict[str, Any] = {}
    for name, (batch, shapes, count, points) in cases.items():
        sizes = torch.tensor(shapes, device=parts.device)
        starts = sizes.prod(1).cumsum(0) - sizes.prod(1)
        value = torch.randn(batch, int(sizes.prod(1).sum()), 8, width, device=parts.device, requires_grad=True)
        locations = torch.rand(batch, count, 8, len(shapes), points, 2, device=parts.device, requires_grad=True)
        weights = torch.rand(batch, count, 8, len(shapes), points, device=parts.device, requires_grad=True)
        tensors = (value, sizes, starts, locations, weights)
        sides: dict[str, Callable[[], Any]] = {
            "kernel": partial(msda.msda, *tensors),
            "pytorch": partial(msda.msda_plain, *tensors),
        }
        if extension_is_there():
            from mmcv.ops.multi_scale_deform_attn import MultiScaleDeformableAttnFunction

            sides["mmcv"] = partial(MultiScaleDeformableAttnFunction.apply, *tensors, 64)
        found[name] = {side: _device_ms(run, (value, locations, weights)) for side, run in sides.items()}
    return found


def _device_ms(run: Callable[[], Any], leaves: tuple[Any, ...]) -> float:
    """Median milliseconds of a forward and backward."""
    import torch

    times: list[float] = []
    for number in range(13):
        for leaf in leaves:
            leaf.grad = None
        events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        torch.cuda.synchronize()
        events[0].record()
        run().sum().backward()
        events[1].record()
        torch.cuda.synchronize()
        if number >= 3:
            times.append(events[0].elapsed_time(events[1]))
    return sorted(times)[len(times) // 2]


def take_pytorch_path() -> None:
    """Have upstream's attentions call mmcv's PyTorch path on a device too, as where no extension is built."""

    class PyTorchPath:
        @staticmethod
        def apply(value: Any, shapes: Any, starts: Any, locations: Any, weights: Any, step: int) -> Any:
            from mmcv.ops.multi_scale_deform_attn import multi_scale_deformable_attn_pytorch as function

            return function(value, shapes, locations, weights)

    modules = "projects.mmdet3d_plugin.bevformer.modules"
    for name in ("decoder", "spatial_cross_attention", "temporal_self_attention"):
        vars(importlib.import_module(f"{modules}.{name}"))["MultiScaleDeformableAttnFunction_fp32"] = PyTorchPath


def main() -> None:
    """Answer what is asked, a line of JSON each."""
    settings = json.loads(sys.argv[1])
    row, device, seed = settings["row"], settings["device"], settings["seed"]
    sys.path.insert(0, settings["repo"])
    with tempfile.TemporaryDirectory() as folder:
        file, groups = config_of(row, settings["config"], Path(folder))
        report = turbo_hydra.apply(optimization_config_path=file)
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(seed)
    module, _, name = settings["builder"].partition(":")
    made = getattr(importlib.import_module(module), name)(settings["repo"], settings["size"], device)
    applied = {entry["group"] for entry in report.to_dict()["execution"] if entry["status"] == "applied"}
    if device != "cpu" and "bevformer.msda" not in applied and settings["baseline"] == "pytorch":
        take_pytorch_path()
    parts = Parts(made, device)
    say = {"device": torch.cuda.get_device_name() if device != "cpu" else "cpu", "groups": groups}
    print(json.dumps(say), flush=True)
    for line in sys.stdin:
        what = line.strip()
        if what == "turn":
            answer = turn(parts, seed)
        elif what == "trace":
            answer = trace(parts, seed)
        elif what == "operators":
            answer = operators(parts)
        else:
            entries = report.to_dict()["execution"]
            answer = {
                entry["group"]: {
                    "status": entry["status"],
                    "hits": [(member["hits"] or {}).get("replacement") for member in entry["members"]],
                    "reasons": [(member["hits"] or {}).get("reasons") for member in entry["members"]],
                }
                for entry in entries
                if entry["purpose"] == "optimization" and entry["status"] != "skipped"
            }
        print(json.dumps(answer), flush=True)
        if what == "end":
            return


if __name__ == "__main__":
    main()
