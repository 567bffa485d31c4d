# SPDX-License-Identifier: Apache-2.0
"""The pass over all objects of the process, made while other threads go on."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from turbo_hydra.engine.instances import hiding
from turbo_hydra.engine.targets import resolve

ENTERED, GO_ON = threading.Event(), threading.Event()


class Slow:
    """The pass stops at an instance of it until it is told to go on."""

    @property
    def __dict__(self) -> dict[str, Any]:  # type: ignore[override]
        ENTERED.set()
        GO_ON.wait(60)
        return {"run": None}

    def run(self) -> None:
        """A target."""


class Kept:
    """A target's class."""

    def run(self) -> None:
        """A target."""


def test_the_pass_keeps_nothing_alive() -> None:
    site = resolve(f"{__name__}.Kept.run")
    instance = Kept()
    instance.run = len  # type: ignore[method-assign, assignment]
    seen = weakref.ref(instance)
    before = gc.isenabled()
    gc.disable()
    try:
        assert len(hiding([site])[site.key]) == 1
        del instance
        assert seen() is None
    finally:
        (gc.enable if before else gc.disable)()


def test_passes_beside_each_other_leave_the_collector_as_it_was() -> None:
    site = resolve(f"{__name__}.Kept.run")
    before = gc.isenabled()
    gc.enable()
    try:
        threads = [threading.Thread(target=hiding, args=([site],)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert gc.isenabled()
    finally:
        (gc.enable if before else gc.disable)()


@pytest.mark.parametrize("collects", [True, False], ids=["collecting", "not collecting"])
def test_a_tuple_that_another_thread_is_filling_can_be_finished(collects: bool) -> None:
    """CPython refuses to finish it while anybody refers to it, as a list of all objects does."""
    ENTERED.clear()
    GO_ON.clear()
    site = resolve(f"{__name__}.Slow.run")
    slow = Slow()
    found: list[Any] = []

    def look() -> None:
        found.append(hiding([site]))

    thread = threading.Thread(target=look)

    def items() -> Iterator[int]:
        yield 1
        thread.start()
        assert ENTERED.wait(60)
        yield 2

    before = gc.isenabled()
    (gc.enable if collects else gc.disable)()
    try:
        finished = tuple(items())
    finally:
        GO_ON.set()
        thread.join(60)
        kept = gc.isenabled()
        (gc.enable if before else gc.disable)()
    assert finished == (1, 2)
    assert kept is collects
    assert any(instance is slow for instance in found[0][site.key])
