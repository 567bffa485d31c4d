# SPDX-License-Identifier: Apache-2.0
"""Groups without which projects on mmcv 1.x do not run on today's Python, NumPy and torch, or without a GPU."""

from __future__ import annotations

from turbo_hydra import About, group, wrap
from turbo_hydra.catalogs.mmcv.extension_names import NAMES
from turbo_hydra.compatibility import before_import, import_alias, optional_import

_HERE = "turbo_hydra.catalogs.mmcv"
_SHARED = "turbo_hydra.catalogs.shared"
_DDP = "mmcv.parallel.distributed.MMDistributedDataParallel"
_VALIDATED = "mmcv 1.7.0, mmdet 2.28.2, mmsegmentation 0.30.0, mmdet3d 1.0.0rc6; Python 3.11, NumPy 1.26, torch 2.13"

group(
    "mmcv.compat_torchvision",
    before_import("torchvision", f"{_SHARED}.torchvision_schemas.declare"),
    about=About(
        purpose="compatibility",
        why="mmcv imports torchvision, whose wheel is made for CUDA: beside a torch without it the import ends in "
        "'operator torchvision::nms does not exist'. The operators are declared where the compiled part does not "
        "load; calling one still fails.",
        numerics="bitwise",
        validated="torchvision 0.28.0 beside torch 2.13 for CPUs",
        until="torchvision imports without its compiled part",
    ),
)

group(
    "mmcv.compat_extension",
    optional_import("mmcv._ext", NAMES),
    about=About(
        purpose="compatibility",
        why="mmcv.ops cannot be imported where mmcv was installed without its compiled operators, which there are "
        "none of for today's torch, though many models call none. A stand-in has the names that mmcv's Python code "
        "asks for; calling one raises an ImportError, and there is no other name. An extension that is there is used.",
        numerics="bitwise",
        validated=_VALIDATED,
        until="mmcv.ops imports without the extension",
    ),
)

group(
    "mmcv.compat_compilers",
    wrap("mmcv.ops.info.get_compiler_version", f"{_HERE}.compat_extension.version"),
    wrap("mmcv.ops.info.get_compiling_cuda_version", f"{_HERE}.compat_extension.version"),
    about=About(
        purpose="compatibility",
        why="Scripts log mmcv's environment, which asks the extension for the compilers that it was made with. "
        "Without one the answer is 'n/a', as mmcv says where mmcv.ops cannot be imported.",
        numerics="bitwise",
        validated=_VALIDATED,
        until="mmcv's collect_env knows of an extension that is absent",
    ),
)

group(
    "mmcv.compat_numpy",
    import_alias("numpy", "builtins.bool", "bool"),
    import_alias("numpy", "builtins.complex", "complex"),
    import_alias("numpy", "builtins.float", "float"),
    import_alias("numpy", "builtins.int", "int"),
    import_alias("numpy", "builtins.int", "long"),
    import_alias("numpy", "builtins.object", "object"),
    import_alias("numpy", "builtins.str", "str"),
    about=About(
        purpose="compatibility",
        why="mmcv, mmdet and mmdet3d use names such as np.bool and np.int, which NumPy has not had since 1.24. Each "
        "is added where it is missing, as the builtin that it was; in loader workers too.",
        numerics="bitwise",
        validated=_VALIDATED,
        until="these packages use the builtins",
    ),
)

group(
    "mmcv.compat_torch",
    wrap("mmcv.parallel._functions._get_stream", f"{_HERE}.compat_torch.get_stream"),
    about=About(
        purpose="compatibility",
        why="mmcv copies batches to a GPU on a stream that it asks torch for by the GPU's number; since torch 2.1 it "
        "is asked for by the device. Without a GPU it is never called.",
        numerics="bitwise",
        validated="torch 2.13 on CPU, the function alone; on a GPU not yet",
        until="mmcv gives a device",
    ),
)

group(
    "mmcv.compat_cpu",
    wrap("mmcv.runner.base_module.BaseModule.cuda", f"{_HERE}.compat_cpu.cuda"),
    wrap("torch.cuda.current_device", f"{_HERE}.compat_cpu.current_device"),
    wrap("mmcv.runner.dist_utils._init_dist_pytorch", f"{_HERE}.compat_cpu.init_dist"),
    wrap(f"{_DDP}._log_and_throw", f"{_HERE}.compat_cpu.ddp_refusal"),
    wrap(f"{_DDP}.train_step", f"{_HERE}.compat_cpu.ddp_step"),
    wrap(f"{_DDP}.val_step", f"{_HERE}.compat_cpu.ddp_step"),
    wrap(f"{_DDP}._run_ddp_forward", f"{_HERE}.compat_cpu.ddp_step"),
    about=About(
        purpose="compatibility",
        why="Training scripts on mmcv move the model to a GPU, ask for its number, and set up several ranks with "
        "NCCL and a GPU each. On a machine without one the model stays, ranks talk through gloo, and batches are "
        "taken out of their containers as for one process. With a GPU everything is as it was.",
        numerics="bitwise",
        validated=f"{_VALIDATED}; one and two ranks",
        until="mmcv's scripts take a device",
    ),
)
