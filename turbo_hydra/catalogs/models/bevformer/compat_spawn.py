# SPDX-License-Identifier: Apache-2.0
"""nuScenes' evaluation config, of which each data set has one, as something that can be sent to loader workers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def init(original: Callable[..., None], options: None) -> Callable[..., None]:
    """Factory for `DetectionConfig.__init__`: the names of the classes as a list, where they were a view of a dict."""

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        self.class_names = list(self.class_names)

    return __init__
