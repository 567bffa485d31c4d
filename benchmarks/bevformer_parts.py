# SPDX-License-Identifier: Apache-2.0
"""BEVFormer at real size: its head's parts with random features, and the whole of it, for `benchmarks.bevformer`."""

from __future__ import annotations

import importlib
import math
from typing import Any

# Height and width of the images, and strides of the feature maps.
IMAGES = {"tiny": (480, 800, (32,)), "small": (736, 1280, (32,)), "base": (928, 1600, (8, 16, 32, 64))}
# Of nuScenes' cameras: yaw in degrees, and focal length in pixels of an image 1600 wide.
CAMERAS = ((0, 1266), (-55, 1266), (55, 1266), (180, 809), (110, 1256), (-110, 1256))


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


def upstream(repo: str, size: str, device: str, whole: bool) -> dict[str, Any]:
    """BEVFormer's head as its config has it, random features, boxes to match, and on demand the whole with images."""
    import torch
    from mmcv import Config
    from mmdet.models import build_head
    from mmdet3d.core.bbox import LiDARInstance3DBoxes
    from mmdet3d.models import build_model

    importlib.import_module("projects.mmdet3d_plugin")
    config = Config.fromfile(f"{repo}/projects/configs/bevformer/bevformer_{size}.py")
    if whole:
        config.model.pop("pretrained", None)
        detector = build_model(config.model, train_cfg=config.get("train_cfg"), test_cfg=config.get("test_cfg"))
        head = detector.pts_bbox_head
        detector.init_weights()
    else:
        detector, head = None, build_head({**config.model.pts_bbox_head, "train_cfg": config.model.train_cfg.pts})
        head.init_weights()
    # As initialized, points lie on the centres of cells, where the derivative by their place jumps and rounding says to
    # which side: no two ways of computing it agree there.
    for name, parameter in head.named_parameters():
        if name.endswith("sampling_offsets.bias"):
            parameter.data.add_(torch.rand_like(parameter) - 0.5)
    height, width, strides = IMAGES[size]
    sizes = [(math.ceil(height / stride), math.ceil(width / stride)) for stride in strides]
    boxes = torch.rand(30, 9)
    boxes[:, :2] = (boxes[:, :2] - 0.5) * 90
    boxes[:, 3:6] += 1.0
    made = {
        "head": head.to(device),
        "features": [torch.randn(1, 6, head.embed_dims, *cells) for cells in sizes],
        "metas": metas(height, width),
        "boxes": LiDARInstance3DBoxes(boxes, box_dim=9),
        "labels": torch.randint(0, head.num_classes, (30,)),
    }
    if whole:
        frames = config.queue_length
        made["detector"] = detector.to(device)
        made["batch"] = {
            "img": torch.randn(1, frames, 6, 3, height, width),
            "img_metas": [
                {frame: {**made["metas"][0], "prev_bev_exists": frame > 0} for frame in range(frames)},
            ],
            "gt_bboxes_3d": [made["boxes"]],
            "gt_labels_3d": [made["labels"]],
        }
    return made


def leave_out_dropout(head: Any) -> None:
    """Have nothing drawn: a compiler and fused kernels draw other numbers."""
    import torch

    for module in head.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        elif isinstance(module, torch.nn.MultiheadAttention):
            module.dropout = 0.0


class Parts:
    """One forward and backward of each part; results by name, gradients where they belong.

    `whole` is a training step of the detector, from images to the optimizer, whose learning rate is 0: the same
    parameters serve each turn.
    """

    def __init__(self, made: dict[str, Any], device: str) -> None:
        import torch

        self.names = ("encoder", "history", "decoder", "loss", *(["whole"] if "detector" in made else []))
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
        if "detector" in made:
            self.detector = made["detector"].train()
            self.batch = {**made["batch"], "img": made["batch"]["img"].to(device)}
            self.batch["gt_labels_3d"] = [labels.to(device) for labels in self.batch["gt_labels_3d"]]
            trained = [item for item in self.detector.parameters() if item.requires_grad]
            self.optimizer = torch.optim.AdamW(trained, lr=0.0)

    def encoder(self) -> dict[str, Any]:
        output = self.head(self.features, self.metas, self.before.clone(), only_bev=True)
        _objective(output).backward()
        return {"bev": output}

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
        return {"states": states, "references": references}

    def loss(self) -> dict[str, Any]:
        predicted = {
            "all_cls_scores": self.scores,
            "all_bbox_preds": self.preds,
            "enc_cls_scores": None,
            "enc_bbox_preds": None,
        }
        losses = self.head.loss([self.boxes], [self.labels], predicted, img_metas=self.metas)
        sum(losses.values()).backward()
        return losses  # type: ignore[no-any-return]

    def whole(self) -> dict[str, Any]:
        import torch

        losses = self.detector(**self.batch)
        sum(losses.values()).backward()
        torch.nn.utils.clip_grad_norm_(self.detector.parameters(), 35.0)
        self.optimizer.step()
        return losses  # type: ignore[no-any-return]

    def clear(self) -> None:
        """Let go of all gradients."""
        self.head.zero_grad(set_to_none=True)
        if "whole" in self.names:
            self.detector.zero_grad(set_to_none=True)
        for item in (*self.features, self.bev, self.scores, self.preds):
            item.grad = None

    def give_back(self) -> None:
        """Leave the device's memory to the other rows."""
        import torch

        self.clear()
        if self.device != "cpu":
            torch.cuda.empty_cache()

    def run(self, name: str, seed: int) -> dict[str, Any]:
        import numpy as np
        import torch

        torch.manual_seed(seed)
        np.random.seed(seed)  # the images' masks are drawn by NumPy
        self.clear()
        return getattr(self, name)()  # type: ignore[no-any-return]


def _objective(output: Any) -> Any:
    """A sum with other weights everywhere: what a norm has made has no gradient by its own size."""
    import torch

    numbers = torch.arange(output.numel(), device=output.device, dtype=output.dtype)
    return (output * numbers.sin().view(output.shape)).mean()
