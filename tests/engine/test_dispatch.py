# SPDX-License-Identifier: Apache-2.0
"""The function that stands at a site: what it passes on, what it counts, what it never does."""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import inspect
import itertools
import os
import sys
import threading
import types
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbo_hydra import fallback
from turbo_hydra.engine import hits as hits_module
from turbo_hydra.engine.dispatch import dispatcher
from turbo_hydra.engine.hits import Hits

Function = Callable[..., Any]


def make(original: Function, replacement: Function, condition: Function | None = None) -> tuple[Function, Hits]:
    hits = Hits()
    return dispatcher(original, replacement, hits=hits, condition=condition, label="a.x lib.f"), hits


def counts(hits: Hits) -> tuple[int, int]:
    return hits.replacement, hits.original


def define(head: str, body: str = "return locals()", **names: Any) -> Any:
    namespace: dict[str, Any] = dict(names)
    exec(f"{head}:\n    {body}", namespace)
    return namespace[head.split("(")[0].split()[-1]]


# What is passed on.

SENTINEL = object()
HEADS = [
    "def f()",
    "def f(x)",
    "def f(x, y=None)",
    "def f(x, /, y, *, z)",
    "def f(x=D, /, y=D, *args, z=D, **kwargs)",
    "def f(*args, **kwargs)",
    "def f(self, *, z=D)",
    "def f(*, x=D, z)",
    "def f(x, *args, y=D, z=D)",
    "def f(x, y=D, /)",
    "def f(x, y, /, z=D)",
    "def f(f, names=D, original=D)",
    "def dispatch(dispatch, x=2)",
    # The names that the generated function has for its own, at the first and the second choice of their beginning.
    "def f(_turbo_chosen, _turbo_replacement=1)",
    "def f(_turbo_original, _turbo_condition=D, *, _turbo_label=D)",
    "def f(_turbo_took, __turbo_left=1, _turbo_left=2)",
    "def f(x=D, *_turbo_require_bool, _turbo_y=D)",
    "def _turbo_replacement(x)",
]
CALLS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((), {}),
    ((1,), {}),
    ((1, 2), {}),
    ((1, 2), {"z": 3}),
    ((1,), {"y": 2, "z": 3}),
    ((), {"x": 1}),
    ((1, 2, 3, 4), {"z": 5, "more": 6}),
    ((1, 2, 3), {}),
    ((), {"_turbo_chosen": 1, "_turbo_replacement": 2}),
]


@pytest.mark.parametrize("conditional", [None, True, False], ids=["plain", "chosen", "left"])
@pytest.mark.parametrize("head", HEADS)
def test_every_call_arrives_as_it_would_at_the_original(head: str, conditional: bool | None) -> None:
    original = define(head, D=SENTINEL)
    seen = define(head, D=SENTINEL)
    asked: list[Any] = []

    def condition(*args: Any, **kwargs: Any) -> Any:
        asked.append((args, kwargs))
        return conditional

    function, hits = make(original, seen, None if conditional is None else condition)
    made = 0
    for args, kwargs in CALLS:
        try:
            expected = original(*args, **kwargs)
        except TypeError:
            with pytest.raises(TypeError):
                function(*args, **kwargs)
            continue
        assert function(*args, **kwargs) == expected
        made += 1
    if conditional is None:
        assert counts(hits) == (made, 0)
    else:
        # With a receiver that takes anything, a call that does not fit fails there: it may have been counted.
        assert sum(counts(hits)) >= made


@pytest.mark.parametrize("head", HEADS)
def test_what_is_installed_looks_like_the_original(head: str) -> None:
    original = define(head, D=SENTINEL)
    original.__doc__ = "What it does."
    original.__module__ = "lib"
    original.__qualname__ = "C.f"
    original.mark = SENTINEL
    function, _ = make(original, define(head, D=SENTINEL))
    assert inspect.signature(function) == inspect.signature(original)
    if "kwargs" not in head:  # where anything is taken, what the caller gave must be told from a default
        assert inspect.signature(function, follow_wrapped=False) == inspect.signature(original)
        assert (function.__defaults__, function.__kwdefaults__) == (original.__defaults__, original.__kwdefaults__)
    for name in ("__name__", "__qualname__", "__module__", "__doc__", "mark"):
        assert getattr(function, name) == getattr(original, name), name
    assert vars(function)["__wrapped__"] is original


def test_annotations_are_the_original_s() -> None:
    def original(x: int, *, y: str = "") -> list[int]:
        return [x]

    function, _ = make(original, lambda x, *, y="": [x])
    assert inspect.signature(function) == inspect.signature(original)
    assert function.__annotations__ == original.__annotations__
    assert function.__annotations__ is not original.__annotations__


def test_a_default_is_the_very_object_of_the_original() -> None:
    default: list[int] = []
    function, _ = make(lambda x=default: x, lambda x=default: x)
    assert function() is default


def two_defaults(x: Any, y: Any = 1, *, z: Any = 2) -> Any: ...


class Anything:
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return args, kwargs

    def method(self, *args: Any, **kwargs: Any) -> Any:
        return args, kwargs


ANYTHING: dict[str, Function] = {
    "function": lambda *args, **kwargs: (args, kwargs),
    "wrapper": functools.wraps(two_defaults)(lambda *args, **kwargs: (args, kwargs)),
    "method": Anything().method,
    "object": Anything(),
    "partial": functools.partial(Anything().method),
    "without a signature": functools.partial(type("Unread", (Anything,), {"__signature__": "none"})()),
}
GIVEN: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((1,), {}),
    ((1,), {"z": 2}),
    ((), {"x": 1, "y": 1}),
    ((1, 1), {"z": 2}),
]


@pytest.mark.parametrize("kind", ANYTHING)
def test_a_replacement_that_takes_anything_gets_exactly_what_the_caller_gave(kind: str) -> None:
    function, _ = make(two_defaults, ANYTHING[kind])
    for args, kwargs in GIVEN:
        assert function(*args, **kwargs) == (args, kwargs)
    assert inspect.signature(function) == inspect.signature(two_defaults)


@pytest.mark.parametrize("kind", ANYTHING)
@pytest.mark.parametrize("answer", [True, False])
def test_a_condition_that_takes_anything_gets_exactly_what_the_caller_gave(kind: str, answer: bool) -> None:
    asked: list[Any] = []

    def condition(*args: Any, **kwargs: Any) -> bool:
        asked.append(ANYTHING[kind](*args, **kwargs))
        return answer

    function, hits = make(two_defaults, two_defaults, condition)
    for args, kwargs in GIVEN:
        function(*args, **kwargs)
    assert asked == GIVEN
    assert counts(hits) == ((len(GIVEN), 0) if answer else (0, len(GIVEN)))


def test_a_parameter_whose_name_is_a_keyword_is_passed_on() -> None:
    class Original:
        __signature__ = inspect.Signature([inspect.Parameter("lambda", inspect.Parameter.POSITIONAL_ONLY)])

        def __call__(self, value: Any) -> Any:
            return value

    function, hits = make(Original(), lambda value: ("ours", value))
    assert function(3) == ("ours", 3)
    assert counts(hits) == (1, 0)


def test_a_signature_that_lies_about_its_function_does_not_narrow_what_may_be_called() -> None:
    def original(*args: Any, **kwargs: Any) -> Any:
        return args, kwargs

    original.__signature__ = inspect.Signature()  # type: ignore[attr-defined]
    function, _ = make(original, lambda *args, **kwargs: (args, kwargs))
    assert function(1, y=2) == ((1,), {"y": 2})
    function, _ = make(original, lambda *args: args)
    assert function(1, 2) == (1, 2)


def test_an_original_without_a_signature_is_passed_everything() -> None:
    function, hits = make(max, lambda *args, **kwargs: ("ours", args, kwargs))
    assert function(1, 2, key=abs) == ("ours", (1, 2), {"key": abs})
    assert function.__name__ == "max"
    assert counts(hits) == (1, 0)


def test_without_counting_and_condition_the_replacement_itself_is_installed() -> None:
    def replacement(x: Any) -> Any:
        return x

    assert dispatcher(lambda x: x, replacement, hits=None) is replacement


@pytest.mark.parametrize("hits", [Hits(), None], ids=["counting", "not counting"])
def test_what_may_not_be_compiled_is_never_installed_itself(hits: Hits | None) -> None:
    def replacement(x: Any) -> Any:
        return ("ours", x)

    function = dispatcher(lambda x: x, replacement, hits=hits, may_compile=False)
    assert function is not replacement
    assert function(1) == ("ours", 1)


@pytest.mark.parametrize("may_compile", [True, False])
def test_what_is_given_to_be_called_where_nothing_compiles_is_called(may_compile: bool) -> None:
    def eager(x: Any) -> Any:
        return ("eager", x)

    hits = Hits()
    function = dispatcher(
        lambda x: "original",
        lambda x: "ours",
        hits=hits,
        condition=lambda x: x > 0,
        eager=eager,
        may_compile=may_compile,
    )
    assert [function(1), function(0)] == [("eager", 1), "original"]
    assert counts(hits) == (1, 1)


def test_without_counting_a_condition_still_chooses() -> None:
    function = dispatcher(lambda x: "original", lambda x: "ours", hits=None, condition=lambda x: x > 0)
    assert [function(1), function(0)] == ["ours", "original"]


# The condition.


@pytest.mark.parametrize("answer", [1, 0, None, "yes", [], type("Falsy", (), {"__bool__": lambda self: False})()])
def test_a_condition_that_is_not_a_bool_is_a_type_error_and_nothing_runs(answer: Any) -> None:
    ran: list[str] = []
    function, hits = make(lambda x: ran.append("original"), lambda x: ran.append("ours"), lambda x: answer)
    with pytest.raises(TypeError, match=r"a\.x lib\.f: runtime_condition must return a bool, found"):
        function(1)
    assert ran == []
    assert counts(hits) == (0, 0)


def test_a_condition_is_asked_once_a_call_with_the_call_s_arguments() -> None:
    asked: list[Any] = []

    def condition(x: Any, *, y: Any = 5) -> bool:
        asked.append((x, y))
        return bool(x)

    function, hits = make(lambda x, *, y=5: ("original", y), lambda x, *, y=5: ("ours", y), condition)
    assert function(1) == ("ours", 5)
    assert function(0, y=2) == ("original", 2)
    assert asked == [(1, 5), (0, 2)]
    assert counts(hits) == (1, 1)


@pytest.mark.parametrize("who", ["condition", "ours", "original"])
def test_an_exception_propagates_and_nothing_else_is_run(who: str) -> None:
    ran: list[str] = []

    def part(name: str, result: Any) -> Function:
        def run(x: Any) -> Any:
            ran.append(name)
            if name == who:
                raise ZeroDivisionError(name)
            return result

        return run

    function, hits = make(part("original", 1), part("ours", 2), part("condition", who != "original"))
    with pytest.raises(ZeroDivisionError, match=who) as caught:
        function(1)
    expected = ["condition"] if who == "condition" else ["condition", who]
    assert ran == expected
    # A call that raised is a call all the same.
    assert counts(hits) == {"condition": (0, 0), "ours": (1, 0), "original": (0, 1)}[who]
    (ours,) = [entry for entry in caught.traceback if "a.x lib.f" in str(entry.path)]
    assert ours.name == "run", "the traceback names the member, and the function by the original's name"


@pytest.mark.parametrize("raised", [KeyboardInterrupt, SystemExit, StopIteration, GeneratorExit])
def test_every_kind_of_exception_propagates(raised: type[BaseException]) -> None:
    def replacement(x: Any) -> Any:
        raise raised

    function, _ = make(lambda x: x, replacement)
    with pytest.raises(raised):
        function(1)


@given(st.lists(st.sampled_from(["ours", "original", "fallback", "raise"]), max_size=30))
def test_the_tallies_add_up_over_any_calls(calls: list[str]) -> None:
    def replacement(call: str) -> str:
        if call == "fallback":
            fallback("not our shape")
            return "original"
        if call == "raise":
            raise ZeroDivisionError
        return "ours"

    function, hits = make(lambda call: "original", replacement, lambda call: call != "original")
    for call in calls:
        if call == "raise":
            with pytest.raises(ZeroDivisionError):
                function(call)
        else:
            assert function(call) == ("ours" if call == "ours" else "original")
    tally = {name: calls.count(name) for name in ("ours", "original", "fallback", "raise")}
    assert hits.replacement == tally["ours"] + tally["raise"]
    assert hits.original == tally["original"] + tally["fallback"]
    assert dict(hits.reasons) == ({"not our shape": tally["fallback"]} if tally["fallback"] else {})
    assert hits.traced == 0


# Fallback.


def test_a_guard_in_a_helper_and_in_a_wrapper_s_closure_is_tallied() -> None:
    def helper(depth: int) -> None:
        if depth:
            helper(depth - 1)
        else:
            fallback("deep")

    def factory(original: Function) -> Function:
        def wrapped(x: Any) -> Any:
            helper(5)
            return original(x)

        return wrapped

    def original(x: Any) -> Any:
        return x

    function, hits = make(original, factory(original))
    assert function(3) == 3
    assert (counts(hits), dict(hits.reasons)) == ((0, 1), {"deep": 1})


def test_a_fallback_belongs_to_the_innermost_member() -> None:
    def inner_replacement(x: Any) -> Any:
        fallback("inner")
        return x

    inner, inner_hits = make(lambda x: x, inner_replacement)

    def outer_replacement(x: Any) -> Any:
        return inner(x)

    outer, outer_hits = make(lambda x: x, outer_replacement)
    outer(1)
    assert (counts(inner_hits), counts(outer_hits)) == ((0, 1), (1, 0))


def test_two_members_with_equal_code_are_told_apart() -> None:
    def replacement(x: Any) -> Any:
        fallback("why")
        return x

    made = [make(lambda x: x, replacement) for _ in range(3)]
    made[1][0](1)
    assert [counts(hits) for _, hits in made] == [(0, 0), (0, 1), (0, 0)]


def test_a_fallback_outside_any_member_is_nothing() -> None:
    fallback("nobody asked")
    # On a thread's short stack all callers are looked at.
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        pool.submit(fallback, "nobody asked").result()


def test_a_fallback_without_counting_is_nothing() -> None:
    def replacement(x: Any) -> Any:
        fallback("why")
        return "original"

    function = dispatcher(lambda x: "original", replacement, hits=None, condition=lambda x: True)
    assert function(1) == "original"


def test_a_constructor_may_fall_back() -> None:
    class Optimizer:
        def __init__(self, lr: float, fused: bool = False) -> None:
            self.lr, self.fused = lr, fused

    original = Optimizer.__init__

    def replacement(self: Any, lr: float, fused: bool = False) -> None:
        if lr < 0:
            fallback("negative")
            return original(self, lr, fused)
        return original(self, lr, True)

    function, hits = make(original, replacement)
    Optimizer.__init__ = function  # type: ignore[method-assign]
    assert (Optimizer(1.0).fused, Optimizer(-1.0).fused) == (True, False)
    assert (counts(hits), dict(hits.reasons)) == ((1, 1), {"negative": 1})


# Kinds of function.


def test_a_coroutine_function_stays_one() -> None:
    async def original(x: Any) -> Any:
        return ("original", x)

    async def replacement(x: Any) -> Any:
        await asyncio.sleep(0)
        if x < 0:
            fallback("negative")
            return await original(x)
        return ("ours", x)

    function, hits = make(original, replacement, lambda x: x != 0)
    assert inspect.iscoroutinefunction(function)

    async def run() -> list[Any]:
        return list(await asyncio.gather(function(1), function(0), function(-1), function(2)))

    assert asyncio.run(run()) == [("ours", 1), ("original", 0), ("original", -1), ("ours", 2)]
    assert (counts(hits), dict(hits.reasons)) == ((2, 2), {"negative": 1})


def test_a_coroutine_that_is_never_awaited_runs_nothing() -> None:
    ran: list[str] = []

    async def replacement(x: Any) -> None:
        ran.append("ours")

    async def original(x: Any) -> None: ...

    function, hits = make(original, replacement)
    function(1).close()
    assert ran == []
    assert counts(hits) == (0, 0)


def test_a_generator_function_stays_one_and_is_driven_through() -> None:
    def original(x: Any) -> Iterator[Any]:
        yield x

    def replacement(x: Any) -> Any:
        if x < 0:
            fallback("negative")
            return (yield from original(x))
        try:
            got = yield x
        except KeyError:
            got = "thrown"
        yield got
        return "done"

    function, hits = make(original, replacement)
    assert inspect.isgeneratorfunction(function)
    made = function(1)
    assert [next(made), made.send("sent")] == [1, "sent"]
    with pytest.raises(StopIteration) as caught:
        next(made)
    assert caught.value.value == "done"
    made = function(2)
    next(made)
    assert made.throw(KeyError) == "thrown"
    made.close()
    assert list(function(-1)) == [-1]
    assert (counts(hits), dict(hits.reasons)) == ((2, 1), {"negative": 1})


def test_a_generator_function_may_be_replaced_by_one_that_returns_an_iterator() -> None:
    def original(x: Any) -> Iterator[Any]:
        yield x

    function, _ = make(original, lambda x: iter([x, x]))
    assert list(function(1)) == [1, 1]


def test_an_asynchronous_generator_is_driven_through() -> None:
    async def original(x: Any) -> AsyncIterator[Any]:
        yield x

    async def replacement(x: Any) -> Any:
        got = yield x
        yield got

    function, hits = make(original, replacement)

    async def run() -> list[Any]:
        made = function(1)
        return [await made.__anext__(), await made.asend("sent")]

    assert asyncio.run(run()) == [1, "sent"]
    assert counts(hits) == (1, 0)


def test_a_context_manager_is_entered_and_left() -> None:
    import contextlib

    @contextlib.contextmanager
    def original(x: Any) -> Iterator[Any]:
        yield x

    @contextlib.contextmanager
    def replacement(x: Any) -> Iterator[Any]:
        yield x + 1

    function, hits = make(original, replacement)
    with function(1) as found:
        assert found == 2
    assert counts(hits) == (1, 0)


def test_calls_are_counted_exactly_with_threads() -> None:
    function, hits = make(lambda x: x, lambda x: x, lambda x: x % 2 == 0)

    def run() -> None:
        for number in range(2000):
            function(number)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts(hits) == (4000, 4000)


def test_recursion_through_the_site_is_counted_at_each_call() -> None:
    holder: dict[str, Function] = {}

    def replacement(x: int) -> int:
        return 0 if x == 0 else 1 + holder["f"](x - 1)

    holder["f"], hits = make(lambda x: x, replacement)
    assert holder["f"](5) == 5
    assert counts(hits) == (6, 0)


class Proxy:
    """Answers whatever it is asked, with something else than functions have there."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return "original"

    def __getattr__(self, name: str) -> Any:
        return Proxy()


def test_a_callable_that_answers_any_name_is_replaced_as_any_other() -> None:
    function, hits = make(Proxy(), lambda *args, **kwargs: "replacement")
    assert function(1, x=2) == "replacement"
    assert counts(hits) == (1, 0)
    assert isinstance(function.__qualname__, str)
    assert isinstance(function.__annotations__, dict)


# Caches.


def test_the_methods_of_a_cache_are_carried_over() -> None:
    @functools.lru_cache(maxsize=3)
    def original(x: Any) -> Any:
        return x

    replacements: tuple[Function, ...] = (lambda x: x, functools.partial(lambda y, x: x, 1))
    for hits, replacement in itertools.product((Hits(), None), replacements):
        function: Any = dispatcher(original, replacement, hits=hits)
        function(1)
        assert function.cache_parameters()["maxsize"] == 3
        function.cache_clear()
        assert function.cache_info().currsize == 0
        assert function.__wrapped__ is original or function.__wrapped__ is original.__wrapped__


def test_clearing_clears_the_cache_of_a_replacement_that_has_one_and_of_the_original() -> None:
    ran: list[str] = []

    @functools.cache
    def original(x: Any) -> Any:
        ran.append("original")
        return x

    @functools.cache
    def replacement(x: Any) -> Any:
        ran.append("ours")
        return x

    function: Any = dispatcher(original, replacement, hits=Hits(), condition=lambda x: x > 0)
    for _ in range(2):
        function(1)
        function(0)
    assert ran == ["ours", "original"]
    assert function.cache_info().currsize == 1
    function.cache_clear()
    function(1)
    function(0)
    assert ran == ["ours", "original", "ours", "original"]


# What a fork of the process counts.


def in_fork(work: Callable[[], tuple[int, ...]]) -> list[int]:
    """What `work` returns in a fork of this process; the fork ends at once."""
    source, sink = os.pipe()
    process = os.fork()
    if process == 0:
        os.write(sink, " ".join(map(str, work())).encode())
        os._exit(0)
    os.close(sink)
    with os.fdopen(source) as told:
        found = told.read()
    os.waitpid(process, 0)
    return [int(word) for word in found.split()]


def test_a_fork_counts_from_0_and_leaves_its_parents_counts_alone() -> None:
    def guarded(x: int) -> int:
        if x < 0:
            fallback("negative")
        return x

    f, hits = make(lambda x: x, guarded, lambda x: x != 0)
    for value in (0, 0, 0, 1, -1):
        f(value)
    hits.traced = 2

    def work() -> tuple[int, ...]:
        before = (*counts(hits), hits.traced, hits.reasons.total())
        for value in (0, 1, 1, -1):
            f(value)
        return (*before, *counts(hits), hits.reasons.total())

    assert in_fork(work) == [0, 0, 0, 0, 2, 2, 1]
    assert (*counts(hits), hits.traced, hits.reasons) == (1, 4, 2, {"negative": 1})


def test_a_fork_while_a_thread_falls_back_does_not_wait_for_that_thread() -> None:
    def falls_back(x: int) -> int:
        fallback("always")
        return x

    f, hits = make(lambda x: x, falls_back)
    with hits_module._telling:  # as another thread holds it at that moment
        assert in_fork(lambda: (f(3), hits.original)) == [3, 1]


def test_a_stack_with_a_dispatcher_is_told_without_a_search_through_all_modules(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sought = []

    class Module(types.ModuleType):
        @property
        def __file__(self) -> str:  # type: ignore[override]
            sought.append(self.__name__)
            return os.path.join(os.path.dirname(__file__), "nowhere.py")

    def caller() -> list[str | None]:
        return [inspect.getframeinfo(frame).function for frame in (sys._getframe(), sys._getframe(1))]

    function, _ = make(lambda: None, caller)
    function()
    monkeypatch.setitem(sys.modules, "sought", Module("sought"))
    assert function() == ["caller", "<lambda>"]
    assert not sought
    inspect.getmodule(define("def elsewhere()").__code__, "<elsewhere>")
    assert sought  # a file that no module has


def test_a_call_that_falls_back_many_times_is_one_call() -> None:
    def replacement(numbers: list[int]) -> Iterator[int]:
        for number in numbers:
            if number < 0:
                fallback("negative")
            yield number

    def original(numbers: list[int]) -> Iterator[int]:
        yield from numbers

    function, hits = make(original, replacement)
    assert list(function([-1, -2, -3])) == [-1, -2, -3]
    assert (counts(hits), dict(hits.reasons)) == ((0, 1), {"negative": 3})
