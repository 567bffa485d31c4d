# SPDX-License-Identifier: Apache-2.0
"""torchvision beside a torch that its compiled part was not built for, such as one without CUDA.

torchvision leaves out a compiled part that does not load, and then registers what `nms` does to fake tensors, which
fails since nobody has declared `nms`. The two operators in question are declared here before torchvision is imported;
calling them ends with torch's error that they have no implementation. All that torchvision does in Python works.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import torch

from turbo_hydra.compatibility import ImportContext

_logger = logging.getLogger("turbo_hydra")
_SCHEMAS = {
    "nms": "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}
# What a Library has declared goes with it.
_kept: list[torch.library.Library] = []


def declare(context: ImportContext) -> None:
    """Declare torchvision's operators where its compiled part does not load; for `before_import`."""
    problem = _problem(context.module)
    missing = [name for name in _SCHEMAS if not hasattr(torch.ops.torchvision, name)]
    if problem is None or not missing:
        return
    _logger.info("torchvision's compiled part does not load (%s); its operators are declared without it", problem)
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in missing:
        library.define(_SCHEMAS[name])
    _kept.append(library)


def _problem(package: str) -> str | None:
    """Why the compiled part does not load; None where it does, which loads it as torchvision would a moment later."""
    spec = getattr(sys.modules.get(package), "__spec__", None)
    folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    files = [file for folder in folders for file in sorted(Path(folder).glob("_C*")) if file.suffix in (".so", ".pyd")]
    if not files:
        return "there is none"
    try:
        torch.ops.load_library(str(files[0]))
    except OSError as error:
        return str(error).splitlines()[0]
    return None
