# SPDX-License-Identifier: Apache-2.0
"""mmcv's data containers with the method by which torch pins what it does not know; imports mmcv."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mmcv.parallel import DataContainer
from torch.utils.data._utils.pin_memory import pin_memory


class PinnedContainer(DataContainer):  # type: ignore[misc]
    """A container whose tensors can be pinned; what stays on the host does."""

    @classmethod
    def of(cls, other: Any) -> PinnedContainer:
        """What `other` holds, and how it is to be sent."""
        return cls(other.data, other.stack, other.padding_value, other.cpu_only, other.pad_dims)

    def pin_memory(self, device: Any = None) -> PinnedContainer:
        """Called by a DataLoader's thread."""
        if not self.cpu_only:
            self._data: Any = pin_memory(self.data)
        return self


def collated(collate: Callable[..., Any], batch: Any) -> Any:
    """What `collate` makes of a batch, in containers that can be pinned."""
    return _pinnable(collate(batch))


def _pinnable(value: Any) -> Any:
    if isinstance(value, DataContainer):
        return PinnedContainer.of(value)
    if isinstance(value, dict):
        return {key: _pinnable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_pinnable(item) for item in value]
    return value
