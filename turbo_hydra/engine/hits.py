# SPDX-License-Identifier: Apache-2.0
"""How often the calls of a member took the replacement and the original, and why not.

A call is counted by calling an `lru_cache` of size 0 before it, which caches nothing and counts in C: the cheapest
counter there is, exact with threads, and without state that Dynamo would guard on. Dynamo traces through to its
`__wrapped__`, which is made to note the trace.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
import types
import weakref
from collections import Counter
from collections.abc import Callable
from typing import Any

_MAX_FRAMES = 16
# By identity, since code objects compare by value and those of two members may be equal; the code is kept with its
# tallies, so that its identity is never that of another.
_by_code: dict[int, tuple[types.CodeType, Hits]] = {}
_telling = threading.Lock()
_all: weakref.WeakSet[Hits] = weakref.WeakSet()


class Hits:
    """Tallies of one member in this process; a fork of it begins at 0.

    Attributes
    ----------
    traced : int
        How often a compiler traced the replacement; compiled calls are not counted.
    reasons : Counter[str]
        What guards said when they fell back.
    """

    def __init__(self) -> None:
        self._replacement: Any = None
        self._original: Any = None
        self.traced = 0
        self.reasons: Counter[str] = Counter()
        _all.add(self)

    def counter_of_replacement(self, *, may_compile: bool) -> Callable[[], object]:
        """What is to be called before each call of the replacement.

        Compilers note that they traced it; with `may_compile` False they run it between two graphs.
        """

        def note() -> None:
            self.traced += 1

        # Dynamo runs a function marked so itself while it traces, and takes its result as a constant.
        note._dynamo_marked_constant = True  # type: ignore[attr-defined]
        self._replacement = _counter(note if may_compile else left_to_interpreter(tuple))
        return self._replacement  # type: ignore[no-any-return]

    def counter_of_original(self) -> Callable[[], object]:
        """What is to be called before each call of the original."""
        self._original = _counter(_calling(tuple))
        return self._original  # type: ignore[no-any-return]

    @property
    def replacement(self) -> int:
        """Calls whose result is the replacement's; recomputation under activation checkpointing counts as a call."""
        return _calls(self._replacement) - self._fallen_back

    @property
    def original(self) -> int:
        """Calls whose result is the original's, by a condition or by a guard."""
        return _calls(self._original) + self._fallen_back

    @property
    def _fallen_back(self) -> int:
        # A generator is one call, however often it says so.
        return min(self.reasons.total(), _calls(self._replacement))

    def reset(self) -> None:
        """Begin at 0."""
        for counter in (self._replacement, self._original):
            if counter is not None:
                counter.cache_clear()
        self.traced = 0
        self.reasons.clear()

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data."""
        return {
            "replacement": self.replacement,
            "original": self.original,
            "traced": self.traced,
            "reasons": dict(self.reasons),
        }


def _counter(traced: Callable[[], object]) -> Any:
    # Dynamo warns of caches around functions that are not torch's; this one caches nothing.
    traced.__module__ = "torch"
    counter: Any = functools.lru_cache(maxsize=0)(tuple)  # nothing is cheaper to call in vain
    counter.__wrapped__ = traced
    return counter


def _calling(function: Callable[..., Any]) -> Callable[..., Any]:
    def calling(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return calling


def traced_as(function: Callable[..., Any], compiled: Callable[..., Any]) -> Callable[..., Any]:
    """What calls `function`, and which compilers take for `compiled`."""
    made = _calling(function)
    made._torchdynamo_inline = _calling(compiled)  # type: ignore[attr-defined]
    return made


def left_to_interpreter(function: Callable[..., Any]) -> Callable[..., Any]:
    """What calls `function` outside of any graph: a compiled caller breaks its own there."""
    # Unlike torch.compiler.disable it does not import the compiler; without torch there is none.
    disable = getattr(sys.modules.get("torch"), "_disable_dynamo", _calling)
    return disable(_calling(function))


def _calls(counter: Any) -> int:
    return 0 if counter is None else int(counter.cache_info().misses)


def _begin_fork() -> None:
    """Leave to the parent what it has counted: who adds up the processes of a run would count it twice."""
    global _telling
    _telling = threading.Lock()  # a thread that is not here may have held it
    for hits in _all:
        hits.reset()


os.register_at_fork(after_in_child=_begin_fork)


def register(function: types.FunctionType, hits: Hits) -> None:
    """Let `fallback` find `hits` when `function` is among its callers."""
    _by_code[id(function.__code__)] = (function.__code__, hits)


def fallback(reason: str) -> None:
    """Say, in a replacement's guard, that this call takes the original's result.

    The call is then counted as original and `reason` is tallied in the report. Where calls are not counted, nothing
    happens.

    Parameters
    ----------
    reason : str
        A few words without numbers that vary from call to call, such as `"not bfloat16"`.
    """
    frame: types.FrameType | None = sys._getframe(1)
    for _ in range(_MAX_FRAMES):
        if frame is None:
            return
        known = _by_code.get(id(frame.f_code))
        if known is not None:
            with _telling:
                known[1].reasons[reason] += 1
            return
        frame = frame.f_back


def _silent(reason: str) -> None:
    """What a compiler sees instead of `fallback`."""


fallback._torchdynamo_inline = _silent  # type: ignore[attr-defined]
