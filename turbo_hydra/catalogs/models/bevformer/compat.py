# SPDX-License-Identifier: Apache-2.0
"""Groups without which BEVFormer does not run on today's Python, NumPy and torch, or without a GPU."""

from __future__ import annotations

from turbo_hydra import About, group, wrap
from turbo_hydra.compatibility import optional_import

_HERE = "turbo_hydra.catalogs.models.bevformer"

group(
    "bevformer.compat_imports",
    optional_import("detectron2"),
    optional_import("detectron2.data"),
    optional_import("detectron2.data.transforms"),
    optional_import("detectron2.layers", ("Conv2d", "ShapeSpec", "batched_nms", "cat", "get_norm")),
    optional_import("detectron2.modeling"),
    optional_import("detectron2.modeling.postprocessing", ("detector_postprocess",)),
    optional_import("detectron2.structures", ("BoxMode", "Boxes", "Instances")),
    optional_import("detectron2.structures.boxes", ("BoxMode",)),
    optional_import("detectron2.utils"),
    optional_import("detectron2.utils.comm", ("get_world_size",)),
    optional_import("detectron2.utils.env", ("TORCH_VERSION",)),
    optional_import("fvcore"),
    optional_import("fvcore.nn", ("sigmoid_focal_loss",)),
    optional_import("fvcore.nn.smooth_l1_loss", ("smooth_l1_loss",)),
    optional_import("IPython", ("embed",)),
    optional_import("traitlets", ("import_item",)),
    # A package of the standard library that many builds have without Tk itself.
    optional_import("tkinter", needs=("_tkinter",)),
    optional_import("tkinter.messagebox", ("NO",)),
    about=About(
        purpose="compatibility",
        why="Importing BEVFormer's plugin imports detectron2 and fvcore, which only the auxiliary head of BEVFormerV2 "
        "uses, and leftovers of debugging from IPython, traitlets and tkinter. Where one is not installed, a stand-in "
        "has the names that are imported; calling one raises an ImportError.",
        numerics="bitwise",
        validated="BEVFormer at 66b65f3 without any of them",
        until="the plugin imports what it uses",
    ),
)

group(
    "bevformer.compat_grid_mask",
    wrap(
        "projects.mmdet3d_plugin.models.utils.grid_mask.GridMask.forward",
        f"{_HERE}.compat_grid_mask.forward",
        stack=True,
    ),
    about=About(
        purpose="compatibility",
        why="The mask is moved to a GPU whether or not there is one. On a CPU it stays with the images; the same "
        "numbers are drawn.",
        numerics="bitwise",
        validated="BEVFormer at 66b65f3, torch 2.13 on CPU",
        until="GridMask moves its mask to where the images are",
    ),
)

group(
    "bevformer.compat_spawn",
    wrap("nuscenes.eval.detection.data_classes.DetectionConfig.__init__", f"{_HERE}.compat_spawn.init"),
    about=About(
        purpose="compatibility",
        why="Each data set has a config of nuScenes' evaluation, which keeps the keys of a dict as such: it cannot be "
        "sent to a loader worker that is started afresh, as mmcv has it with several ranks. They are kept as a list.",
        numerics="bitwise",
        validated="nuscenes-devkit 1.2.0, workers started by spawn",
        until="nuscenes-devkit keeps a list",
    ),
)
