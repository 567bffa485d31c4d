# SPDX-License-Identifier: Apache-2.0
"""Training scripts on mmcv on a machine without a GPU: models stay where they are, ranks talk through gloo.

Each function asks when it is called whether there is an accelerator, and leaves everything as it is where there is one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from turbo_hydra import fallback

Function = Callable[..., Any]
_REASON = "there is an accelerator"


def cuda(original: Function, options: None) -> Function:
    """Factory for `BaseModule.cuda`."""

    def cuda(self: Any, device: int | torch.device | None = None) -> Any:
        if torch.accelerator.is_available():
            fallback(_REASON)
            return original(self, device)
        return self

    return cuda


def current_device(original: Callable[[], int], options: None) -> Callable[[], int]:
    """Factory for `torch.cuda.current_device`: 0 where there is none, which DDP is not given then."""

    def current_device() -> int:
        if torch.accelerator.is_available():
            fallback(_REASON)
            return original()
        return 0

    return current_device


def init_dist(original: Function, options: None) -> Function:
    """Factory for `_init_dist_pytorch`."""

    def _init_dist_pytorch(backend: str, **kwargs: Any) -> None:
        if torch.accelerator.is_available():
            fallback(_REASON)
            original(backend, **kwargs)
            return
        torch.distributed.init_process_group(backend="gloo" if backend == "nccl" else backend, **kwargs)

    return _init_dist_pytorch


def ddp_refusal(original: Function, options: None) -> Function:
    """Factory for `_log_and_throw` of `MMDistributedDataParallel`: a model on a CPU may come with the number of a GPU.

    DDP goes on as without the number, which is what it would be told if the script knew.
    """

    def _log_and_throw(self: Any, err_type: type[Exception], err_msg: str) -> None:
        if getattr(self, "device_type", None) == "cpu" and "device_ids" in err_msg:
            return
        fallback("another refusal")
        original(self, err_type, err_msg)

    return _log_and_throw


def ddp_step(original: Function, options: None) -> Function:
    """Factory for `train_step`, `val_step` and `_run_ddp_forward` of `MMDistributedDataParallel`."""

    def step(self: Any, *inputs: Any, **kwargs: Any) -> Any:
        if self.device_ids:
            fallback("a model on an accelerator")
            return original(self, *inputs, **kwargs)
        # -1 is mmcv's number of the CPU: data is taken out of its containers and stays.
        of_ranks, kwargs_of_ranks = self.scatter(inputs, kwargs, [-1])
        return original(self, *of_ranks[0], **kwargs_of_ranks[0])

    return step
