# SPDX-License-Identifier: Apache-2.0
"""Targets that are called and offer more than that: partials, kernels with a grid, modules, dispatching functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.engine.conftest import Lab

LIB = """
    import functools

    def base(x, y):
        return ("original", x, y)

    f = functools.partial(base, 1, y=2)
    f.note = "a partial has attributes of its own"

    class Kernel:
        '''Launched as kernel[grid](x), as a Triton kernel is; a plain call is another thing.'''
        def __init__(self, said):
            self.said, self.warps = said, 4
        def __call__(self, x):
            return (self.said, x)
        def __getitem__(self, grid):
            return lambda x: (self.said, grid, x)

    kernel = Kernel("original")

    class Held:
        kernel = staticmethod(kernel)

    @functools.singledispatch
    def kind(x):
        return "original"

    @kind.register
    def _(x: int):
        return "original int"
"""
NEW = """
    import functools
    from . import lib

    def partial(*args, **kwargs):
        return ("ours", *args)

    def of_three(*args, **kwargs):
        return ("ours", *args[1:])

    other = functools.partial(of_three, 7, y=3)

    faster = lib.Kernel("ours")

    class Tuned(lib.Kernel):
        pass

    tuned = Tuned("ours")

    def plain(x):
        return ("ours", x)

    def wider(x):
        return x > 1

    def retuned(original, options):
        return lib.Kernel("ours, " + original.said)

    def kind(x):
        return "ours"
"""


@pytest.fixture
def callables(lab: Lab) -> Lab:
    lab.write("lib", LIB)
    lab.write("new", NEW)
    return lab


@pytest.mark.parametrize("counting", ["auto", "off"])
@pytest.mark.parametrize("replacement", ["new.partial", "new.other"])
def test_a_partial_keeps_its_parts(callables: Lab, replacement: str, counting: Any) -> None:
    callables.group("it", callables.replace("lib.f", replacement))
    callables.record()
    lib, new = callables.load("lib"), callables.load("new")
    made = callables.apply(count_calls=counting)
    assert lib.f(5) == ("ours", 5)
    # Those of the replacement where it is a partial too, and of the original where a function takes its place.
    parts = (new.of_three, (7,), {"y": 3}) if replacement == "new.other" else (lib.base, (1,), {"y": 2})
    assert (lib.f.func, lib.f.args, lib.f.keywords) == parts
    if counting == "auto" or replacement == "new.partial":
        assert lib.f.note.startswith("a partial")
    else:
        assert lib.f is new.other, "where nothing is counted, it stands there itself"
    assert "target.attributes" not in callables.checks()
    made.undo()
    assert type(lib.f).__name__ == "partial"


@pytest.mark.parametrize("replacement", ["new.faster", "new.tuned"])
@pytest.mark.parametrize("target", ["lib.kernel", "lib.Held.kernel"])
def test_an_object_of_the_original_s_type_stands_there_itself(callables: Lab, target: str, replacement: str) -> None:
    callables.group("it", callables.replace(target, replacement))
    made = callables.apply(force=("it",))
    installed = callables.get(target)
    assert installed is callables.get(replacement)
    assert installed[8](3) == ("ours", 8, 3)
    assert callables.member()["hits"] is None, "what nobody counts is not said to be unused"
    assert "target.attributes" not in callables.checks()
    made.undo()
    assert callables.get(target)[8](3) == ("original", 8, 3)


def test_a_factory_may_make_such_an_object(callables: Lab) -> None:
    callables.group("it", callables.wrap("lib.kernel", "new.retuned"))
    callables.apply(force=("it",))
    assert callables.get("lib.kernel")[8](3) == ("ours, original", 8, 3)


def test_a_function_in_its_place_is_a_warning_that_names_what_is_lost(callables: Lab) -> None:
    callables.group("it", callables.replace("lib.kernel", "new.plain"))
    callables.apply(force=("it",))
    assert callables.status() == "applied"
    assert callables.get("lib.kernel")(3) == ("ours", 3)
    check = callables.checks()["target.attributes"]
    assert (check.status, check.expected) == ("warning", "__getitem__, said, warps")
    assert f"'{callables.path('lib.kernel')}' is a Kernel" in check.message
    assert "lacks '__getitem__', 'said', 'warps'" in check.message
    assert callables.hits() == (1, 0)


def test_with_a_condition_a_function_chooses_and_the_warning_is_there(callables: Lab) -> None:
    callables.group("it", callables.replace("lib.kernel", "new.faster", runtime_condition="new.wider"))
    callables.apply(force=("it",))
    assert [callables.get("lib.kernel")(x) for x in (1, 2)] == [("original", 1), ("ours", 2)]
    assert callables.checks()["target.attributes"].status == "warning"


def test_of_an_object_with_many_attributes_some_are_named_and_all_are_listed(callables: Lab) -> None:
    callables.write("lib", LIB + "    for name in 'abcdefgh':\n        setattr(kernel, name, 1)\n")
    callables.group("it", callables.replace("lib.kernel", "new.plain"))
    callables.apply(force=("it",))
    check = callables.checks()["target.attributes"]
    assert "'a', 'b', 'c', 'd' and 6 more" in check.message
    assert check.expected == "__getitem__, a, b, c, d, e, f, g, h, said, warps"


def test_a_function_s_own_attributes_are_carried_over_and_no_warning_is_given(callables: Lab) -> None:
    callables.group("it", callables.replace("lib.kind", "new.kind"))
    callables.apply(force=("it",))
    lib = callables.load("lib")
    assert lib.kind(1) == "ours"
    assert lib.kind.dispatch(int)(1) == "original int"
    assert "target.attributes" not in callables.checks()


def test_a_module_that_is_a_target_itself_is_replaced_by_a_module(callables: Lab) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    callables.write("act", "import torch\nACT = torch.nn.GELU()\n")
    callables.write(
        "fast",
        "import torch\nclass Tanh(torch.nn.GELU):\n    def forward(self, x):\n        return x * 0.0\n"
        "ACT = Tanh()\ndef act(*args, **kwargs):\n    return args[0] * 0.0\n",
    )
    callables.group("it", callables.replace("act.ACT", "fast.ACT"))
    callables.group("bare", callables.replace("act.ACT", "fast.act"))
    made = callables.apply(force=("it",), disable=("bare",))
    module = callables.get("act.ACT")
    assert torch.nn.Sequential(module)(torch.ones(2)).sum() == 0
    made.undo()
    callables.apply(force=("bare",), disable=("it",))
    assert "more" in callables.checks("bare")["target.attributes"].message
