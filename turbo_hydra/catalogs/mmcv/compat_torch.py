# SPDX-License-Identifier: Apache-2.0
"""What torch asks for differently than it did when mmcv 1.x was written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def get_stream(original: Callable[[Any], Any], options: None) -> Callable[[Any], Any]:
    """Factory for `_get_stream` as mmcv knows it: by the number of a GPU."""

    def _get_stream(device: Any) -> Any:
        return original(torch.device("cuda", device) if isinstance(device, int) else device)

    return _get_stream
