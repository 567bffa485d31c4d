# SPDX-License-Identifier: Apache-2.0
"""Batches are copied to the device beside what it is working on."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from turbo_hydra import fallback

Batches = Callable[[Any], Iterator[Any]]


def batches(original: Batches, options: None) -> Batches:
    """Factory for `DataLoaderImpl.__iter__`, which gives an observation and actions in the host's memory.

    The script copies each field by itself and waits for it, from memory that is not pinned: the copy begins when the
    device has finished the step before. Here they are pinned and copied on a stream of their own while that step still
    runs, and the device, not the script, waits for them; the script's own copy finds them where they belong.
    """

    def __iter__(self: Any) -> Iterator[Any]:
        stream = torch.cuda.Stream() if torch.cuda.is_available() else None
        for batch in original(self):
            if stream is None:
                fallback("no CUDA device")
            elif not all(type(item) is Tensor and item.device.type == "cpu" for item in _leaves(batch)):
                fallback("something that is no tensor in the host's memory")
            else:
                batch = _sent(batch, stream)
            yield batch

    return __iter__


def _sent(batch: Any, stream: torch.cuda.Stream) -> Any:
    script = torch.cuda.current_stream()
    with torch.cuda.stream(stream):
        sent = _mapped(batch, lambda item: item.pin_memory().to(stream.device, non_blocking=True))
    script.wait_stream(stream)
    # They were allocated for the other stream, which would reuse their memory as soon as the script lets go of them.
    for item in _leaves(sent):
        item.record_stream(script)
    return sent


def _leaves(value: Any) -> list[Any]:
    found: list[Any] = []

    def note(item: Any) -> Any:
        found.append(item)
        return item

    _mapped(value, note)
    return found


def _mapped(value: Any, function: Callable[[Any], Any]) -> Any:
    """A copy of tuples, mappings and dataclasses with each leaf replaced; None is no leaf."""
    if value is None:
        return None
    if isinstance(value, dict):
        return {name: _mapped(item, function) for name, item in value.items()}
    if type(value) in (tuple, list):
        return type(value)(_mapped(item, function) for item in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {item.name: _mapped(getattr(value, item.name), function) for item in dataclasses.fields(value)}
        return dataclasses.replace(value, **fields)
    return function(value)
