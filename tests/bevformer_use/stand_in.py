# SPDX-License-Identifier: Apache-2.0
"""Packages with the names and layouts of those that the compatibility groups meet, each file a few lines.

They fail where the real ones fail on a CPU, beside a current NumPy, and without compiled code.
"""

from __future__ import annotations

import shutil
from pathlib import Path

SITE = {
    # As torchvision beside a torch without CUDA, whose compiled part does not load.
    "torchvision/__init__.py": """\
        import torch
        torch.library.register_fake("torchvision::nms", lambda dets, scores, iou_threshold: dets.new_empty(0))
        """,
    "mmcv/__init__.py": "import torchvision\n",
    "mmcv/utils/ext_loader.py": """\
        import importlib

        def load_ext(name, functions):
            extension = importlib.import_module("mmcv." + name)
            for function in functions:
                assert hasattr(extension, function), function
            return extension
        """,
    "mmcv/ops/__init__.py": "from .info import get_compiler_version, get_compiling_cuda_version\n",
    "mmcv/ops/info.py": """\
        from ..utils import ext_loader
        extension = ext_loader.load_ext("_ext", ["nms", "get_compiler_version", "get_compiling_cuda_version"])

        def get_compiler_version():
            return extension.get_compiler_version()

        def get_compiling_cuda_version():
            return extension.get_compiling_cuda_version()
        """,
    "mmcv/parallel/__init__.py": "from .distributed import MMDistributedDataParallel\nfrom . import _functions\n",
    "mmcv/parallel/_functions.py": "from torch.nn.parallel._functions import _get_stream\n",
    "mmcv/parallel/distributed.py": """\
        from torch.nn.parallel import DistributedDataParallel

        class Container:
            def __init__(self, data):
                self.data = data

        class MMDistributedDataParallel(DistributedDataParallel):
            def scatter(self, inputs, kwargs, device_ids):
                assert device_ids == [-1]
                return (tuple(item.data for item in inputs),), ({name: item.data for name, item in kwargs.items()},)

            def train_step(self, *inputs, **kwargs):
                assert not self.device_ids, "no GPU is there"
                output = self.module.train_step(*inputs, **kwargs)
                self.reducer.prepare_for_backward([])
                return output

            def val_step(self, *inputs, **kwargs):
                return self.module.val_step(*inputs, **kwargs)

            def _run_ddp_forward(self, *inputs, **kwargs):
                return self.module(*inputs, **kwargs)
        """,
    "mmcv/runner/__init__.py": "",
    "mmcv/runner/base_module.py": "import torch\n\nclass BaseModule(torch.nn.Module):\n    pass\n",
    "mmcv/runner/dist_utils.py": """\
        import os
        import torch

        def _init_dist_pytorch(backend, **kwargs):
            torch.cuda.set_device(int(os.environ["RANK"]) % torch.cuda.device_count())
            torch.distributed.init_process_group(backend=backend, **kwargs)
        """,
    "nuscenes/eval/detection/data_classes.py": """\
        class DetectionConfig:
            def __init__(self, class_range, min_recall):
                self.class_range = class_range
                self.class_names = self.class_range.keys()
                self.min_recall = min_recall
        """,
}
CHECKOUT = {
    "projects/__init__.py": "",
    "projects/mmdet3d_plugin/__init__.py": "from .models.utils.grid_mask import GridMask\nfrom . import fp16\n",
    "projects/mmdet3d_plugin/fp16.py": """\
        from tkinter.messagebox import NO
        from IPython import embed
        from traitlets import import_item
        from fvcore.nn import sigmoid_focal_loss
        from fvcore.nn.smooth_l1_loss import smooth_l1_loss
        from detectron2.data import transforms
        from detectron2.layers import Conv2d, ShapeSpec, batched_nms, cat, get_norm
        from detectron2.modeling.postprocessing import detector_postprocess
        from detectron2.structures import Boxes, BoxMode, Instances
        from detectron2.structures.boxes import BoxMode
        from detectron2.utils import comm
        from detectron2.utils.comm import get_world_size
        from detectron2.utils.env import TORCH_VERSION
        """,
    "projects/mmdet3d_plugin/models/__init__.py": "",
    "projects/mmdet3d_plugin/models/utils/__init__.py": "",
    "projects/mmdet3d_plugin/models/utils/grid_mask.py": """\
        import numpy as np
        import torch

        class GridMask(torch.nn.Module):
            def forward(self, x):
                mask = np.random.rand(x.shape[-1]) > 0.5
                return x * torch.from_numpy(mask).to(x.dtype).cuda()
        """,
    "tools/train.py": """\
        import json, multiprocessing, os, pathlib
        import numpy as np
        import torch
        from mmcv.ops import get_compiler_version
        from mmcv.parallel import MMDistributedDataParallel
        from mmcv.parallel.distributed import Container
        from mmcv.runner import base_module, dist_utils
        from nuscenes.eval.detection.data_classes import DetectionConfig

        class Model(base_module.BaseModule):
            def __init__(self, mask):
                super().__init__()
                self.layer, self.mask = torch.nn.Linear(4, 1), mask

            def train_step(self, x, scale):
                return self.layer(self.mask(x)).sum() * scale

        def in_worker(config):
            return [type(config).__name__, config.class_names, np.int is int, get_compiler_version()]

        def main():
            import importlib
            plugin = importlib.import_module("projects.mmdet3d_plugin")
            dist_utils._init_dist_pytorch("nccl")
            torch.manual_seed(0)
            np.random.seed(1)
            kept = (np.random.rand(4) > 0.5).tolist()
            np.random.seed(1)
            model = Model(plugin.GridMask()).cuda()
            wrapped = MMDistributedDataParallel(
                model, device_ids=[torch.cuda.current_device()], broadcast_buffers=False)
            x = torch.full((1, 4), 1.0 + int(os.environ["RANK"]))
            wrapped.train_step(Container(x), scale=Container(2.0)).backward()
            config = DetectionConfig({"car": 50, "bus": 50}, 0.1)
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                worker = pool.apply(in_worker, (config,))
            told = {
                "worker": worker,
                "rank": in_worker(config),
                "kept": kept,
                "gradient": model.layer.weight.grad[0].tolist(),
                "backend": torch.distributed.get_backend(),
            }
            torch.distributed.destroy_process_group()
            pathlib.Path(f"seen_{os.environ['RANK']}.json").write_text(json.dumps(told))

        if __name__ == "__main__":
            main()
        """,
}


def write(folder: Path, files: dict[str, str]) -> Path:
    """Write the files, and an empty `__init__.py` in each folder of a package that has none."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = text.splitlines()
        indent = len(lines[0]) - len(lines[0].lstrip()) if lines else 0
        path.write_text("".join(f"{line[indent:]}\n" for line in lines), encoding="utf-8")
        for parent in path.relative_to(folder).parents:
            init = folder / parent / "__init__.py"
            if str(parent) not in (".", "tools") and not init.exists():
                init.write_text("", encoding="utf-8")
    return folder


def completed(folder: Path, small: Path) -> Path:
    """A copy of the small model of tests/bevformer with what it lacks of these packages; all of it can be imported."""
    shutil.copytree(small, folder, ignore=shutil.ignore_patterns("__pycache__"))
    extension = {"mmcv/_ext.py": "nms = get_compiler_version = get_compiling_cuda_version = print\n"}
    broken = "torchvision/"
    missing = {name: text for name, text in {**SITE, **extension}.items() if not (folder / name).exists()}
    return write(folder, {name: text for name, text in missing.items() if not name.startswith(broken)})
