# SPDX-License-Identifier: Apache-2.0
"""The pass over all objects of the process, made while other threads go on."""

from __future__ import annotations

import gc
import threading
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
