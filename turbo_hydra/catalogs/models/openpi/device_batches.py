# SPDX-License-Identifier: Apache-2.0
"""Batches are copied to the device beside what it is working on."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor

from turbo_hydra import fallback

Batches = Callable[[Any], Iterator[Any]]
_END: Any = object()


def batches(original: Batches, options: None) -> Batches:
    """Factory for `DataLoaderImpl.__iter__`, which gives an observation and actions in the host's memory.

    The script copies each field by itself and waits for it, from memory that is not pinned: the copy begins when the
    device has finished the step before. Here a thread takes the next batch from the workers, pins it and copies it on a
    stream of its own while the script is busy with a step, and the device, not the script, waits for it; the script's
    own copy finds it where it belongs.
    """

    def __iter__(self: Any) -> Iterator[Any]:
        reason = None if torch.cuda.is_available() else "no CUDA device"
        if reason is None and not _has_workers(self):
            # What is drawn at random for a sample would be drawn in a thread, beside what the script draws.
            reason = "samples are made in the training process"
        if reason is not None:
            fallback(reason)
            yield from original(self)
        else:
            yield from _ahead(original(self), torch.cuda.Stream())

    return __iter__


def _has_workers(loader: Any) -> bool:
    return bool(getattr(getattr(getattr(loader, "_data_loader", None), "torch_loader", None), "num_workers", 0))


def _ahead(batches: Iterator[Any], stream: torch.cuda.Stream) -> Iterator[Any]:
    """The batches on the device, the next one on its way while one is used."""

    def next_sent() -> tuple[Any, torch.cuda.Event | None]:
        batch = next(batches, _END)
        if batch is _END or not all(type(item) is Tensor and item.device.type == "cpu" for item in _leaves(batch)):
            return batch, None
        with torch.cuda.stream(stream):
            sent = _mapped(batch, lambda item: item.pin_memory().to(stream.device, non_blocking=True))
            return sent, stream.record_event()

    # The loader starts its workers with the first batch, and would not be told of their end in a thread.
    batch, copied = next_sent()
    with ThreadPoolExecutor(1, thread_name_prefix="batches") as thread:
        while batch is not _END:
            coming = thread.submit(next_sent)
            if copied is None:
                fallback("something that is no tensor in the host's memory")
            else:
                script = torch.cuda.current_stream(stream.device)
                script.wait_event(copied)
                # They were allocated for the other stream, which would reuse their memory as soon as the script lets
                # go of them.
                for item in _leaves(batch):
                    item.record_stream(script)
            yield batch
            batch, copied = coming.result()


def _leaves(value: Any) -> list[Any]:
    found: list[Any] = []
    _mapped(value, found.append)
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
        # Not by its __init__: OpenPI's checks types, which takes milliseconds, and has checked these.
        copied = copy.copy(value)
        for field in dataclasses.fields(value):
            object.__setattr__(copied, field.name, _mapped(getattr(value, field.name), function))
        return copied
    return function(value)
